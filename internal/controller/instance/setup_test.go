package instance

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

func TestSettingsThatWereDeletedAreTheDefaults(t *testing.T) {
	t.Parallel()
	r := newRig(t, listed(1)...)
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaxConcurrentJoins = 1
	if err := r.api.Create(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	free := func() (count int) {
		for n := range 2 * defaultJoins {
			if r.parts.Slots.Acquire(key(n)) {
				count++
			}
		}
		for n := range 2 * defaultJoins {
			r.parts.Slots.Release(key(n))
		}
		return count
	}
	if requests := r.limit(t.Context(), config); len(requests) != 1 || free() != 1 {
		t.Errorf("%v; %d slots, want 1", requests, free())
	}
	if err := r.api.Delete(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	r.limit(t.Context(), config) // the event contains the deleted object
	if free() != defaultJoins {
		t.Errorf("%d slots, want %d", free(), defaultJoins)
	}
}

func TestALowerLimitTakesNoSlotAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, append(listed(1), listed(2)...)...)
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	r.parts.Slots.SetLimit(1)
	r.register(t, 1, "")
	r.register(t, 2, "")
	r.reconcile(t, 1)
	r.reconcile(t, 2)
	if one, two := r.get(t, 1), r.get(t, 2); one.Status.Phase != v1alpha1.PhaseHandingOver ||
		two.Status.Phase != v1alpha1.PhaseHandingOver {
		t.Errorf("the first host is in %s, the second in %s", one.Status.Phase, two.Status.Phase)
	}
}

func TestOnlyNewsOfANodeThatConcernUsWakeItsInstance(t *testing.T) {
	t.Parallel()
	base := func() *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "win-a",
				Annotations: map[string]string{contract.RevisionAnnotation: "1"}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady,
				Status: corev1.ConditionTrue}}},
		}
	}
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		wakes  bool
	}{
		"a heartbeat": {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() },
			false},
		"an image": {func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}} },
			false},
		"an annotation of others": {func(n *corev1.Node) { n.Annotations["example.com/x"] = "y" }, false},
		"the version":             {func(n *corev1.Node) { n.Annotations[contract.RevisionAnnotation] = "2" }, true},
		"kubelet reports no more": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown },
			true},
		"a user cordons the node":     {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"a label is removed or added": {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, true},
		"another Node of the name":    {func(n *corev1.Node) { n.UID = "another" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := base()
			test.change(changed)
			if got := nodeNews().Update(event.UpdateEvent{ObjectOld: base(), ObjectNew: changed}); got != test.wakes {
				t.Errorf("wakes = %v", got)
			}
		})
	}
}

func TestACertificateRequestWakesItsInstance(t *testing.T) {
	t.Parallel()
	csr := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{contract.InstanceAnnotation: "ns/10.0.0.1"}}}
	r := steady(t, 1)
	if requests := r.ofCertificate(t.Context(), csr); len(requests) != 1 || requests[0].NamespacedName != key(1) {
		t.Errorf("wakes %v", requests)
	}
	for _, annotation := range []string{"", "10.0.0.1", "elsewhere/10.0.0.1"} {
		csr.Annotations[contract.InstanceAnnotation] = annotation
		if requests := r.ofCertificate(t.Context(), csr); len(requests) != 0 {
			t.Errorf("a certificate request for %q triggers %v", annotation, requests)
		}
	}
}
