package policy

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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

// described is what the operator wrote on a MachineSet of what others may write, too: only that is
// corrected. Machine is when the Machine was made of which it is, and Size what its set asked the cloud
// for: those that are older may be of another type.
type described struct {
	Machine time.Time `json:"machine"`
	Size    string    `json:"size,omitempty"`
	CPU     string    `json:"vCPU,omitempty"`
	Memory  string    `json:"memoryMb,omitempty"`
	Build   string    `json:"build,omitempty"`
}

// Size is what a MachineSet asks the cloud for. Text tells sizes apart; processors and memory are 0 where it is a type
// of the cloud's, by its name.
type Size struct {
	Text            string
	CPUs, MemoryMiB int64
}

// Capacity gives the annotations that a MachineSet lacks for the autoscaler, or that the operator wrote
// and that are another by now, as a Node of its Machines was seen. What somebody else wrote stays. made
// is when the Node's Machine was made, and size what the set asks the cloud for, as the Machine did: its
// numbers count more than what a kubelet says of itself, which would stay when all nodes are gone.
func Capacity(annotations map[string]string, node *corev1.Node, made time.Time, size Size) map[string]string {
	wrote := readDescribed(annotations)
	if made.Before(wrote.Machine) && wrote.Size == size.Text {
		return nil
	}
	next, now := wrote, map[string]string{}
	now[CapacityCPU], next.CPU = describe(annotations[CapacityCPU], wrote.CPU,
		cmp.Or(size.CPUs, node.Status.Capacity.Cpu().Value()))
	now[CapacityMemory], next.Memory = describe(annotations[CapacityMemory], wrote.Memory,
		cmp.Or(size.MemoryMiB, node.Status.Capacity.Memory().Value()>>20))
	labels := annotations[CapacityLabels]
	labels = list(labels, corev1.LabelOSStable, "="+string(corev1.Windows), "")
	labels = list(labels, corev1.LabelArchStable, "=amd64", "")
	if build := node.Labels[contract.BuildLabel]; slices.ContainsFunc(contract.WindowsBuilds(),
		func(b contract.WindowsBuild) bool { return b.Label() == build }) {
		before := labels
		labels = list(labels, contract.BuildLabel, "="+build, wrote.Build)
		next.Build = ""
		if labels != before || build == wrote.Build {
			next.Build = build
		}
	}
	now[CapacityLabels], now[CapacityTaints] = labels, annotations[CapacityTaints]
	for _, taint := range node.Spec.Taints {
		if taint.Key == contract.TaintKey && taint.Effect == corev1.TaintEffectNoSchedule {
			now[CapacityTaints] = list(now[CapacityTaints], taint.Key, "="+taint.Value+":"+string(taint.Effect), "")
		}
	}
	if next.Size = size.Text; next != wrote {
		next.Machine = made.UTC()
		now[contract.DescribedAnnotation] = next.text()
	}
	maps.DeleteFunc(now, func(key, value string) bool { return annotations[key] == value })
	return now
}

// OutgrownCapacity gives the annotations that the operator wrote of Machines of another size than the set
// asks for by now, and no Node shows yet what those have: they are removed where their value is nil. The
// autoscaler then waits for a Node, or for somebody to write them, and plans with none that will not come.
func OutgrownCapacity(annotations map[string]string, size string) map[string]*string {
	wrote := readDescribed(annotations)
	if wrote.Size == "" || wrote.Size == size {
		return nil
	}
	gone := map[string]*string{}
	for key, value := range map[string]*string{CapacityCPU: &wrote.CPU, CapacityMemory: &wrote.Memory} {
		if *value != "" && annotations[key] == *value {
			gone[key] = nil
		}
		*value = ""
	}
	if len(gone) > 0 {
		text := wrote.text()
		gone[contract.DescribedAnnotation] = &text
	}
	return gone
}

// readDescribed reads what the operator wrote. What can't be read is not ours.
func readDescribed(annotations map[string]string) described {
	wrote := described{}
	if json.Unmarshal([]byte(annotations[contract.DescribedAnnotation]), &wrote) != nil {
		return described{}
	}
	return wrote
}

func (d described) text() string {
	text, _ := json.Marshal(d) //nolint:errchkjson // times and texts
	return string(text)
}

// describe gives the value of an annotation, and what of it the operator wrote.
func describe(has, wrote string, seen int64) (value, writes string) {
	switch {
	case has != "" && has != wrote:
		return has, ""
	case seen <= 0:
		return has, wrote
	}
	value = strconv.FormatInt(seen, 10)
	return value, value
}

// list puts a key with what follows it into a list that is separated by commas. What the list says of
// the key already stays, unless it is the value that the operator wrote.
func list(text, key, rest, wrote string) string {
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
	case wrote != "" && parts[i] == key+"="+wrote:
		parts[i] = key + rest
	}
	return strings.Join(parts, ",")
}
