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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

func describedSet(name string) *machinev1beta1.MachineSet {
	return &machinev1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: name,
		UID: types.UID(name)}}
}

func describedMachine(name, set, os string, age time.Duration) *machinev1beta1.Machine {
	yes := true
	return &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: name,
		Labels: map[string]string{contract.MachineOSLabel: os}, CreationTimestamp: metav1.NewTime(time.Unix(1_800_000_000, 0).Add(-age)),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: machinev1beta1.GroupVersion.String(), Kind: "MachineSet",
			Name: set, UID: types.UID(set), Controller: &yes}}},
		Status: machinev1beta1.MachineStatus{NodeRef: &corev1.ObjectReference{Kind: "Node", Name: name}}}
}

func describedNode(name, cpu string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		corev1.LabelOSStable: "windows", corev1.LabelArchStable: "amd64"}}, Status: corev1.NodeStatus{
		Capacity:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
}

func TestAMachineSetIsDescribedAsItsYoungestReadyNodeIs(t *testing.T) {
	t.Parallel()
	patches := 0
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(describedSet("windows"), describedSet("empty"), describedSet("linux"),
		describedMachine("old", "windows", contract.OSIDWindows, 3*time.Hour), describedMachine("young", "windows", contract.OSIDWindows, time.Hour),
		describedMachine("boots", "windows", contract.OSIDWindows, time.Minute), describedMachine("worker", "linux", "", time.Hour),
		describedNode("old", "2", corev1.ConditionTrue), describedNode("young", "4", corev1.ConditionTrue),
		describedNode("boots", "8", corev1.ConditionFalse), describedNode("worker", "16", corev1.ConditionTrue)).
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
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(describedSet(name)), got); err != nil {
			t.Fatal(err)
		}
		if got.Annotations[policy.CapacityCPU] != cpu {
			t.Errorf("MachineSet %s: %v", name, got.Annotations)
		}
	}
}

// An instance type of a MachineSet holds for Machines that are made from then on. What they were seen to
// have stays when they are gone and older ones are not.
func TestWhatASetIsDescribedAsFollowsTheTypeOfItsMachines(t *testing.T) {
	t.Parallel()
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(describedSet("windows"),
		describedMachine("old", "windows", contract.OSIDWindows, 3*time.Hour), describedNode("old", "2", corev1.ConditionTrue)).
		Build()
	d := &describer{client: api, machines: api}
	expect := func(when, cpu string) {
		t.Helper()
		if _, err := d.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		got := describedSet("windows")
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
			t.Fatal(err)
		}
		if got.Annotations[policy.CapacityCPU] != cpu {
			t.Errorf("%s: %v", when, got.Annotations)
		}
	}
	expect("the first Machine", "2")
	young, node := describedMachine("young", "windows", contract.OSIDWindows, time.Hour), describedNode("young", "8", corev1.ConditionTrue)
	if err := errors.Join(api.Create(t.Context(), young), api.Create(t.Context(), node)); err != nil {
		t.Fatal(err)
	}
	expect("a Machine of another type", "8")
	if err := errors.Join(api.Delete(t.Context(), young), api.Delete(t.Context(), node)); err != nil {
		t.Fatal(err)
	}
	expect("the older Machine is left", "8")
	others := describedSet("windows")
	others.Annotations = map[string]string{policy.CapacityCPU: "6"}
	if err := api.Patch(t.Context(), others, client.Merge); err != nil {
		t.Fatal(err)
	}
	younger := describedMachine("younger", "windows", contract.OSIDWindows, 0)
	if err := errors.Join(api.Create(t.Context(), younger),
		api.Create(t.Context(), describedNode("younger", "4", corev1.ConditionTrue))); err != nil {
		t.Fatal(err)
	}
	expect("somebody wrote another value", "6")
}

// Between a change of the type and the first Node of it, the autoscaler would plan with Nodes that do not
// come.
func TestASetThatAsksForAnotherTypeIsNotDescribedAsTheOldOne(t *testing.T) {
	t.Parallel()
	typed := func(name string) machinev1beta1.ProviderSpec {
		return machinev1beta1.ProviderSpec{Value: &runtime.RawExtension{
			Raw: []byte(`{"instanceType":"` + name + `","userDataSecret":{"name":"windows-user-data"},"ami":{"id":"x"}}`)}}
	}
	set, old := describedSet("windows"), describedMachine("old", "windows", contract.OSIDWindows, 3*time.Hour)
	set.Spec.Template.Spec.ProviderSpec, old.Spec.ProviderSpec = typed("m5.large"), typed("m5.large")
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(set, old,
		describedNode("old", "2", corev1.ConditionTrue)).Build()
	d := &describer{client: api, machines: slimReader{api}}
	expect := func(when, cpu string) {
		t.Helper()
		if _, err := d.Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		got := describedSet("windows")
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
			t.Fatal(err)
		}
		if got.Annotations[policy.CapacityCPU] != cpu {
			t.Errorf("%s: %v", when, got.Annotations)
		}
	}
	asks := func(of string) {
		t.Helper()
		now := describedSet("windows")
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(now), now); err != nil {
			t.Fatal(err)
		}
		now.Spec.Template.Spec.ProviderSpec = typed(of)
		if err := api.Update(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	expect("the first Machine", "2")
	asks("m5.2xlarge")
	expect("another type, and the old node is there", "")
	expect("the same again", "")
	asks("m5.large")
	expect("the old type again", "2")
	asks("m5.2xlarge")
	if err := errors.Join(api.Delete(t.Context(), old), api.Delete(t.Context(), describedNode("old", "2", ""))); err != nil {
		t.Fatal(err)
	}
	expect("another type, and there is no node", "")
	young := describedMachine("young", "windows", contract.OSIDWindows, 0)
	young.Spec.ProviderSpec = typed("m5.2xlarge")
	if err := errors.Join(api.Create(t.Context(), young),
		api.Create(t.Context(), describedNode("young", "8", corev1.ConditionTrue))); err != nil {
		t.Fatal(err)
	}
	expect("the first node of the other type", "8")
}

// A kubelet may say anything of its host; where the set asks for numbers, those are what its nodes will have.
func TestASetThatAsksForNumbersIsDescribedByThem(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{
		"vSphere": `{"numCPUs":4,"numCoresPerSocket":2,"memoryMiB":16384}`,
		"Nutanix": `{"vcpuSockets":2,"vcpusPerSocket":2,"memorySize":"16Gi"}`,
	} {
		set, machine := describedSet("windows"), describedMachine("a", "windows", contract.OSIDWindows, time.Hour)
		set.Spec.Template.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: []byte(spec)}
		machine.Spec.ProviderSpec.Value = &runtime.RawExtension{Raw: []byte(spec)}
		api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(set, machine,
			describedNode("a", "1", corev1.ConditionTrue)).Build()
		if _, err := (&describer{client: api, machines: slimReader{api}}).Reconcile(t.Context(), ctrl.Request{}); err != nil {
			t.Fatal(err)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(set), set); err != nil {
			t.Fatal(err)
		}
		if set.Annotations[policy.CapacityCPU] != "4" || set.Annotations[policy.CapacityMemory] != "16384" {
			t.Errorf("%s: %v", name, set.Annotations)
		}
	}
}

// slimReader gives what the operator's cache keeps.
type slimReader struct{ client.Reader }

func (r slimReader) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if err := r.Reader.List(ctx, list, options...); err != nil {
		return err
	}
	switch l := list.(type) {
	case *machinev1beta1.MachineList:
		for i := range l.Items {
			if _, err := slim(&l.Items[i]); err != nil {
				return err
			}
		}
	case *machinev1beta1.MachineSetList:
		for i := range l.Items {
			if _, err := slim(&l.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
