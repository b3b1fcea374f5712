package policy_test

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

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
	said := func(arch string) *corev1.Node {
		other := node.DeepCopy()
		if other.Labels[corev1.LabelArchStable] = arch; arch == "" {
			delete(other.Labels, corev1.LabelArchStable)
		}
		return other
	}
	const labels = "kubernetes.io/os=windows,kubernetes.io/arch=amd64,node.kubernetes.io/windows-build=10.0.20348"
	made := time.Unix(1_800_000_000, 0)
	ours := func(rest string) string { return `{"machine":"2027-01-15T08:00:00Z",` + rest + "}" }
	with := func(annotations map[string]string, wrote string) map[string]string {
		next := map[string]string{contract.DescribedAnnotation: ours(wrote)}
		for key, value := range annotations {
			if key != contract.DescribedAnnotation {
				next[key] = value
			}
		}
		return next
	}
	every := ours(`"vCPU":"4","memoryMb":"16383","build":"10.0.20348"`)
	all := map[string]string{contract.DescribedAnnotation: every, policy.CapacityCPU: "4", policy.CapacityMemory: "16383", policy.CapacityLabels: labels,
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
		"of a node whose kubelet says something else": {node: said("arm64"), want: all},
		"of a node whose kubelet says nothing":        {node: said(""), want: all},
		"everything":                                  {has: all, want: map[string]string{}},
		"what its cloud wrote": {has: map[string]string{policy.CapacityCPU: "8", policy.CapacityMemory: "1"},
			want: with(without(policy.CapacityCPU, policy.CapacityMemory), `"build":"10.0.20348"`)},
		"what its cloud wrote meanwhile": {has: with(all, `"vCPU":"2","memoryMb":"16383","build":"10.0.20348"`),
			want: with(nil, `"memoryMb":"16383","build":"10.0.20348"`)},
		"what was seen of another type": {has: map[string]string{policy.CapacityCPU: "2", policy.CapacityMemory: "8191",
			policy.CapacityTaints: "os=Windows:NoSchedule", policy.CapacityLabels: labels, contract.DescribedAnnotation: `{"machine":` +
				`"2026-01-01T00:00:00Z","vCPU":"2","memoryMb":"8191","build":"10.0.20348"}`}, want: without(policy.CapacityLabels,
			policy.CapacityTaints)},
		"what was seen of a younger Machine": {has: map[string]string{policy.CapacityCPU: "2",
			contract.DescribedAnnotation: `{"machine":"2028-01-01T00:00:00Z","vCPU":"2"}`}, want: map[string]string{}},
		"a build that somebody else wrote": {has: map[string]string{policy.CapacityLabels: labels + "0",
			contract.DescribedAnnotation: ours(`"build":"10.0.17763"`)}, want: with(without(policy.CapacityLabels),
			`"vCPU":"4","memoryMb":"16383"`)},
		"an empty build that somebody else wrote": {has: map[string]string{policy.CapacityLabels: strings.TrimSuffix(labels, "10.0.20348")},
			want: with(without(policy.CapacityLabels), `"vCPU":"4","memoryMb":"16383"`)},
		"a description that can't be read": {has: map[string]string{policy.CapacityCPU: "2", contract.DescribedAnnotation: `{"vCPU":"2",`},
			want: with(without(policy.CapacityCPU), `"memoryMb":"16383","build":"10.0.20348"`)},
		"labels of others": {has: map[string]string{policy.CapacityLabels: "kubernetes.io/arch=amd64,mine=1,kubernetes.io/os=x"},
			want: map[string]string{policy.CapacityCPU: "4", policy.CapacityMemory: "16383", contract.DescribedAnnotation: every,
				policy.CapacityTaints: "os=Windows:NoSchedule", policy.CapacityLabels: "kubernetes.io/arch=amd64,mine=1," +
					"kubernetes.io/os=x,node.kubernetes.io/windows-build=10.0.20348"}},
		"another build": {has: map[string]string{policy.CapacityCPU: "4", policy.CapacityMemory: "16383",
			policy.CapacityTaints: "os:NoSchedule", policy.CapacityLabels: "kubernetes.io/os=windows,kubernetes.io/arch=amd64," +
				"node.kubernetes.io/windows-build=10.0.17763", contract.DescribedAnnotation: ours(`"build":"10.0.17763"`)},
			want: with(map[string]string{policy.CapacityLabels: labels}, `"build":"10.0.20348"`)},
		"nonsense": {has: map[string]string{policy.CapacityLabels: ",=,"}, want: map[string]string{policy.CapacityCPU: "4",
			policy.CapacityMemory: "16383", policy.CapacityTaints: "os=Windows:NoSchedule", policy.CapacityLabels: ",=,," + labels,
			contract.DescribedAnnotation: every}},
	} {
		if got := policy.Capacity(c.has, cmp.Or(c.node, node), made, policy.Size{}); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// What a kubelet says of itself would stay on its set when all nodes are gone.
func TestWhatASetAsksForCountsMoreThanWhatAKubeletSays(t *testing.T) {
	t.Parallel()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{contract.BuildLabel: "10.0.1"}},
		Status: corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"),
			corev1.ResourceMemory: resource.MustParse("1Gi")}}}
	const labels = "kubernetes.io/os=windows,kubernetes.io/arch=amd64"
	for name, c := range map[string]struct {
		size        policy.Size
		cpu, memory string
	}{
		"numbers":             {policy.Size{Text: "large", CPUs: 4, MemoryMiB: 16384}, "4", "16384"},
		"processors only":     {policy.Size{Text: "large", CPUs: 4}, "4", "1024"},
		"a type of a cloud's": {policy.Size{Text: "large"}, "1", "1024"},
	} {
		got := policy.Capacity(nil, node, time.Unix(1_800_000_000, 0), c.size)
		if got[policy.CapacityCPU] != c.cpu || got[policy.CapacityMemory] != c.memory ||
			got[policy.CapacityLabels] != labels || strings.Contains(got[contract.DescribedAnnotation], "build") {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestASizeThatASetNoLongerAsksForIsWithdrawn(t *testing.T) {
	t.Parallel()
	const ours = `{"machine":"2027-01-15T08:00:00Z","size":"small","vCPU":"4","memoryMb":"16383","build":"10.0.20348"}`
	const left = `{"machine":"2027-01-15T08:00:00Z","size":"small","build":"10.0.20348"}`
	for name, c := range map[string]struct {
		has  map[string]string
		size string
		gone []string
	}{
		"the same size": {has: map[string]string{policy.CapacityCPU: "4", contract.DescribedAnnotation: ours}, size: "small"},
		"another size": {has: map[string]string{policy.CapacityCPU: "4", policy.CapacityMemory: "16383", policy.CapacityLabels: "a=b",
			contract.DescribedAnnotation: ours}, size: "large", gone: []string{policy.CapacityCPU, policy.CapacityMemory}},
		"another size, and a value of somebody else": {has: map[string]string{policy.CapacityCPU: "8",
			policy.CapacityMemory: "16383", contract.DescribedAnnotation: ours}, size: "large", gone: []string{policy.CapacityMemory}},
		"withdrawn already": {has: map[string]string{contract.DescribedAnnotation: left}, size: "large"},
		"a size that was not noted": {has: map[string]string{policy.CapacityCPU: "4",
			contract.DescribedAnnotation: `{"machine":"2027-01-15T08:00:00Z","vCPU":"4"}`}, size: "large"},
		"nothing of ours": {has: map[string]string{policy.CapacityCPU: "4"}, size: "large"},
	} {
		got := policy.OutgrownCapacity(c.has, c.size)
		note := got[contract.DescribedAnnotation]
		delete(got, contract.DescribedAnnotation)
		if !slices.Equal(slices.Sorted(maps.Keys(got)), slices.Sorted(slices.Values(c.gone))) ||
			len(c.gone) > 0 && (note == nil || *note != left) {
			t.Errorf("%s: %v, note %v", name, got, note)
		}
	}
}
