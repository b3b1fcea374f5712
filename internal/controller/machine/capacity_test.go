package machine

import (
	"context"
	"errors"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

func TestAMachineSetIsDescribedAsItsYoungestReadyNodeIs(t *testing.T) {
	t.Parallel()
	set := func(name string) *machinev1beta1.MachineSet {
		return &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: name,
			UID: types.UID(name)}}
	}
	machine := func(name, set, os string, age time.Duration) *machinev1beta1.Machine {
		yes := true
		return &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: name,
			Labels: map[string]string{contract.MachineOSLabel: os}, CreationTimestamp: metav1.NewTime(time.Unix(1_800_000_000, 0).Add(-age)),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: machinev1beta1.GroupVersion.String(), Kind: "MachineSet",
				Name: set, UID: types.UID(set), Controller: &yes}}},
			Status: machinev1beta1.MachineStatus{NodeRef: &corev1.ObjectReference{Kind: "Node", Name: name}}}
	}
	node := func(name, cpu string, ready corev1.ConditionStatus) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelOSStable: "windows", corev1.LabelArchStable: "amd64"}}, Status: corev1.NodeStatus{
			Capacity:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	patches := 0
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set("windows"), set("empty"), set("linux"),
		machine("old", "windows", contract.OSIDWindows, 3*time.Hour), machine("young", "windows", contract.OSIDWindows, time.Hour),
		machine("boots", "windows", contract.OSIDWindows, time.Minute), machine("worker", "linux", "", time.Hour),
		node("old", "2", corev1.ConditionTrue), node("young", "4", corev1.ConditionTrue),
		node("boots", "8", corev1.ConditionFalse), node("worker", "16", corev1.ConditionTrue)).
		WithInterceptorFuncs(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, o client.Object,
			patch client.Patch, options ...client.PatchOption) error {
			patches++
			return c.Patch(ctx, o, patch, options...)
		}}).Build()
	d := &describer{client: api, machines: api}
	for range 2 {
		if _, err := d.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
	}
	if patches != 1 {
		t.Errorf("%d patches", patches)
	}
	for name, cpu := range map[string]string{"windows": "4", "empty": "", "linux": ""} {
		got := &machinev1beta1.MachineSet{}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(set(name)), got); err != nil {
			t.Fatal(err)
		}
		if got.Annotations[policy.CapacityCPU] != cpu {
			t.Errorf("MachineSet %s: %v", name, got.Annotations)
		}
	}
}
