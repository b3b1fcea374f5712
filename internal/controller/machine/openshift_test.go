package machine

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

func TestAMachineIsReadWhateverItLacks(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for name, test := range map[string]struct {
		machine machinev1beta1.Machine
		want    inventory.Machine
	}{
		"nothing": {},
		"everything": {
			machinev1beta1.Machine{
				ObjectMeta: metav1.ObjectMeta{
					Name: "a", Namespace: "ns", UID: "uid", CreationTimestamp: now, DeletionTimestamp: &now,
					Labels:      map[string]string{contract.IgnoreLabel: "true"},
					Annotations: map[string]string{contract.SSHPortAnnotation: "2222"},
					OwnerReferences: []metav1.OwnerReference{{Kind: "X", Name: "x"},
						{Kind: "MachineSet", Name: "set", UID: "set-uid", Controller: ptr.To(true)}},
				},
				Spec: machinev1beta1.MachineSpec{ProviderID: ptr.To("cloud://a")},
				Status: machinev1beta1.MachineStatus{
					Phase: ptr.To("Running"), NodeRef: &corev1.ObjectReference{Name: "node"},
					AuthoritativeAPI: machinev1beta1.MachineAuthorityClusterAPI,
					Addresses:        []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
				},
			},
			inventory.Machine{
				Name: "a", Namespace: "ns", UID: "uid", CreatedAt: now.Time, Phase: inventory.MachineRunning,
				Deleting: true, Ignored: true, Port: "2222",
				Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
				ProviderID: "cloud://a", NodeRef: "node", ManagedBy: "ClusterAPI",
				Owner: &inventory.Owner{Kind: "MachineSet", UID: "set-uid"},
			},
		},
		"an invalid owner": {
			machinev1beta1.Machine{
				ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet",
					Name: "set"}}}}, inventory.Machine{},
		},
		"managed by its own API": {
			machinev1beta1.Machine{
				Status: machinev1beta1.MachineStatus{AuthoritativeAPI: machinev1beta1.MachineAuthorityMachineAPI}},
			inventory.Machine{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if difference := cmp.Diff(test.want, fromOpenShift(&test.machine)); difference != "" {
				t.Error(difference)
			}
		})
	}
}

func TestAMachineThatFailedHasNoHost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		phase  string
		leaves bool
		exists bool
	}{
		"it runs": {machinev1beta1.PhaseRunning, false, true},
		// A failed Machine exists until a user deletes it.
		"it failed":                       {machinev1beta1.PhaseFailed, false, false},
		"it failed, and leaves":           {machinev1beta1.PhaseFailed, true, true},
		"no controller has reconciled it": {"", false, true},
	} {
		m := &machinev1beta1.Machine{Status: machinev1beta1.MachineStatus{Phase: &test.phase}}
		if test.leaves {
			m.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		if got := origin(m); got.Exists != test.exists {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := origin(&machinev1beta1.Machine{}); !got.Exists {
		t.Errorf("without a phase: %+v", got)
	}
}

// The cache of a leader that was suspended for a while contains outdated objects.
func TestOnlyTheInstanceThatWasSeenIsDiscarded(t *testing.T) {
	t.Parallel()
	seen := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "1",
		ResourceVersion: "5", Finalizers: []string{contract.InstanceFinalizer}}}
	seen.Spec.RemovalPolicy = v1alpha1.RemovalClean
	there := seen.DeepCopy()
	there.UID, there.ResourceVersion = "2", "7"
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(there).Build()
	if err := (&Reconciler{client: api}).discard(t.Context(), seen); !errors.Is(err, errChanged) {
		t.Errorf("the instance is not reconciled again: %v", err)
	}
	got := &v1alpha1.WindowsInstance{}
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(there), got); err != nil || !got.DeletionTimestamp.IsZero() ||
		got.Spec.RemovalPolicy != v1alpha1.RemovalClean {
		t.Errorf("deleted at %v, policy %s, %v", got.DeletionTimestamp, got.Spec.RemovalPolicy, err)
	}
}
