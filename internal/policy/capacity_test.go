package policy_test

import (
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

func TestASetGetsWhatTheAutoscalerHasToKnowOfNodesThatItDoesNotHave(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: "windows",
			corev1.LabelArchStable: "amd64", contract.BuildLabel: "10.0.20348", "other": "label"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule},
			{Key: contract.TaintKey, Value: contract.TaintValue, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"),
			corev1.ResourceMemory: resource.MustParse("16776756Ki")}},
	}
	const labels = "kubernetes.io/os=windows,kubernetes.io/arch=amd64,node.kubernetes.io/windows-build=10.0.20348"
	all := map[string]string{policy.CapacityCPU: "4", policy.CapacityMemory: "16383", policy.CapacityLabels: labels,
		policy.CapacityTaints: "os=Windows:NoSchedule"}
	without := func(keys ...string) map[string]string {
		rest := maps.Clone(all)
		for _, key := range keys {
			delete(rest, key)
		}
		return rest
	}
	for name, c := range map[string]struct {
		has, want map[string]string
		node      *corev1.Node
	}{
		"nothing yet": {want: all},
		"everything":  {has: all, want: map[string]string{}},
		"what its cloud wrote": {has: map[string]string{policy.CapacityCPU: "8", policy.CapacityMemory: "1"},
			want: without(policy.CapacityCPU, policy.CapacityMemory)},
		"labels of others": {has: map[string]string{policy.CapacityLabels: "kubernetes.io/arch=amd64,mine=1,kubernetes.io/os=x"},
			want: map[string]string{policy.CapacityCPU: "4", policy.CapacityMemory: "16383",
				policy.CapacityTaints: "os=Windows:NoSchedule", policy.CapacityLabels: "kubernetes.io/arch=amd64,mine=1," +
					"kubernetes.io/os=x,node.kubernetes.io/windows-build=10.0.20348"}},
		"another build": {has: map[string]string{policy.CapacityCPU: "4", policy.CapacityMemory: "16383",
			policy.CapacityTaints: "os:NoSchedule", policy.CapacityLabels: "kubernetes.io/os=windows,kubernetes.io/arch=amd64," +
				"node.kubernetes.io/windows-build=10.0.17763"}, want: map[string]string{policy.CapacityLabels: labels}},
		"nonsense": {has: map[string]string{policy.CapacityLabels: ",=,"}, want: map[string]string{policy.CapacityCPU: "4",
			policy.CapacityMemory: "16383", policy.CapacityTaints: "os=Windows:NoSchedule", policy.CapacityLabels: ",=,," + labels}},
	} {
		if got := policy.Capacity(c.has, node); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
