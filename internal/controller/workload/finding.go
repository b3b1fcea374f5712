package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/windows-nodes/wmco/internal/contract"
)

// found identifies an event. It includes the namespace, because an owner reference may have a foreign UID.
type found struct {
	namespace string
	owner     types.UID
	reason    contract.Reason
}

// finding is the problem of one pod.
type finding struct {
	found
	name, why string
	// regarding is the object of the event.
	regarding *corev1.ObjectReference
}

func newFinding(pod *corev1.Pod, reason contract.Reason, why string) finding {
	at := owner(pod)
	return finding{found: found{pod.Namespace, at.UID, reason}, name: pod.Name, why: shorten(why, whyBytes),
		regarding: at}
}

// owner returns the object of the events about a pod: the controller that owns the pod, or the pod itself. The creator
// of a pod can write anything into the owner reference, so an invalid owner reference is ignored.
func owner(pod *corev1.Pod) *corev1.ObjectReference {
	made := metav1.GetControllerOf(pod)
	if made == nil || made.Kind == "Node" || // a static pod
		len(validation.IsDNS1123Subdomain(made.Name)) > 0 ||
		max(len(made.APIVersion), len(made.Kind), len(made.UID)) > validation.DNS1123SubdomainMaxLength {
		return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name,
			UID: pod.UID}
	}
	return &corev1.ObjectReference{APIVersion: made.APIVersion, Kind: made.Kind, Namespace: pod.Namespace,
		Name: made.Name, UID: made.UID}
}

// The function `few` adds a finding to a list, sorts the list by reason and then by pod name, and keeps the first
// findings. A condition shows the first reason. Because the list is sorted by reason first, this reason rarely changes.
func few(first []finding, f finding) []finding {
	first = append(first, f)
	slices.SortFunc(first, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.reason, b.reason), strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name))
	})
	return first[:min(len(first), named)]
}

// known contains the findings in one list of pods: their number for each reason, and the first few.
type known struct {
	// Times: when the list was last read (`tried`), when it was last read completely (`all`), and of the findings.
	tried, all, seen time.Time
	counts           map[contract.Reason]int
	first            []finding
}

// merge adds the findings of a pass. It keeps earlier findings only if the pass found nothing and has not read all
// pods.
func (k *known) merge(counts map[contract.Reason]int, first []finding, all bool, now time.Time) {
	if all || len(first) > 0 {
		k.counts, k.first, k.seen = counts, first, now
	}
	if all {
		k.all = now
	}
}

// problem returns the findings as a problem. It returns nil only if a recent pass has read all pods and found none.
func (k *known) problem(now time.Time) *contract.Problem {
	switch {
	case len(k.first) > 0 && now.Sub(k.seen) <= staleAfter:
		return k.sum()
	case k.all.IsZero():
		return contract.NewProblem(contract.ReasonPodsNotRead, "the pods on the node could not all be read yet")
	case now.Sub(k.all) > staleAfter:
		return contract.NewProblem(contract.ReasonPodsNotRead, "the pods on the node could not all be read since %s",
			k.all.UTC().Format(time.RFC3339))
	}
	return nil
}

func (k *known) sum() *contract.Problem {
	more := -len(k.first)
	for _, count := range k.counts {
		more += count
	}
	var texts []string
	for _, f := range k.first {
		texts = append(texts, fmt.Sprintf("%s/%s %s", f.namespace, f.name, f.why))
	}
	text := strings.Join(texts, "; ")
	if more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return &contract.Problem{Reason: k.first[0].reason, Detail: text}
}

// shorten truncates a text that the pod's creator may control. It also removes characters that can't be printed.
func shorten(text string, most int) string {
	text = strings.ToValidUTF8(text[:min(len(text), most)], "")
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, strings.Clone(text))
}
