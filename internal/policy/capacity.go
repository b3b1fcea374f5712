package policy

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// What the cluster autoscaler reads on a MachineSet without Machines, to know what Node it would get.
// Without the labels it takes each Node to run Linux.
const (
	CapacityCPU    = "machine.openshift.io/vCPU"
	CapacityMemory = "machine.openshift.io/memoryMb"
	CapacityLabels = "capacity.cluster-autoscaler.kubernetes.io/labels"
	CapacityTaints = "capacity.cluster-autoscaler.kubernetes.io/taints"
)

// Capacity gives the annotations that a MachineSet lacks for the autoscaler, as a Node of its Machines
// was seen. What is there stays, whoever wrote it, but for the build of Windows: that of the Node is
// newer.
func Capacity(annotations map[string]string, node *corev1.Node) map[string]string {
	missing := map[string]string{}
	absent := func(key string, value int64) {
		if annotations[key] == "" && value > 0 {
			missing[key] = strconv.FormatInt(value, 10)
		}
	}
	absent(CapacityCPU, node.Status.Capacity.Cpu().Value())
	absent(CapacityMemory, node.Status.Capacity.Memory().Value()>>20)
	labels := annotations[CapacityLabels]
	for _, key := range []string{corev1.LabelOSStable, corev1.LabelArchStable} {
		labels = list(labels, key, "="+node.Labels[key], false)
	}
	if build := node.Labels[contract.BuildLabel]; build != "" {
		labels = list(labels, contract.BuildLabel, "="+build, true)
	}
	taints := annotations[CapacityTaints]
	for _, taint := range node.Spec.Taints {
		if taint.Key == contract.TaintKey && taint.Effect == corev1.TaintEffectNoSchedule {
			taints = list(taints, taint.Key, "="+taint.Value+":"+string(taint.Effect), false)
		}
	}
	for key, value := range map[string]string{CapacityLabels: labels, CapacityTaints: taints} {
		if annotations[key] != value {
			missing[key] = value
		}
	}
	return missing
}

// list puts a key with what follows it into a list that is separated by commas. What the list says
// of the key already stays, or is replaced.
func list(text, key, rest string, replace bool) string {
	var parts []string
	if text != "" {
		parts = strings.Split(text, ",")
	}
	i := slices.IndexFunc(parts, func(part string) bool {
		name, _, _ := strings.Cut(strings.ReplaceAll(part, ":", "="), "=")
		return strings.TrimSpace(name) == key
	})
	switch {
	case i < 0:
		parts = append(parts, key+rest)
	case replace:
		parts[i] = key + rest
	}
	return strings.Join(parts, ",")
}
