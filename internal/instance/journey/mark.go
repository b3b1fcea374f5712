package journey

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Marks are what the operator writes on a Node of ours.
type Marks struct {
	Instance *v1alpha1.WindowsInstance
	// KeyHash is the hash of the public key that was accepted; empty leaves the annotation alone.
	KeyHash string
	// Revision that the node should have; empty leaves the annotation alone.
	Revision string
	// Cordon keeps pods away until the node is whole. A cordon that is there already is not ours
	// and stays.
	Cordon bool
	// Upgrading shows that the node has a place in the rollout budget.
	Upgrading bool
	// Bare leaves the labels and taints of the instance's spec as they are on the Node: what is under way for it goes
	// on, whether or not the API server takes them.
	Bare bool
}

// Apply writes the marks on a Node in memory. A repeated call changes nothing.
func (m Marks) Apply(node *corev1.Node) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	if !m.Bare {
		for _, key := range m.Instance.Status.NodeLabels {
			delete(node.Labels, key) // what is still in the spec follows
		}
		maps.Copy(node.Labels, m.Instance.Spec.Labels)
	}
	node.Labels[contract.OSIDLabel] = contract.OSIDWindows
	if source := m.Instance.Spec.Source; source == nil || source.Kind != v1alpha1.SourceMachine {
		node.Labels[contract.BYOHLabel] = "true"
		node.Labels[contract.WorkerLabel] = ""
	}
	node.Annotations[contract.InstanceAnnotation] = reference(m.Instance)
	if m.KeyHash != "" {
		node.Annotations[contract.PublicKeyHashAnnotation] = m.KeyHash
	}
	m.request(node)
	if keyType, key, ok := strings.Cut(m.Instance.Status.HostKey, " "); ok {
		node.Annotations[contract.HostKeyTypeAnnotation], node.Annotations[contract.HostKeyAnnotation] = keyType, key
	}
	if m.Upgrading {
		node.Labels[contract.UpgradingLabel] = "true"
	}
	m.taint(node)
	if m.Cordon && !node.Spec.Unschedulable {
		node.Spec.Unschedulable = true
		node.Annotations[contract.CordonedAnnotation] = "true"
	}
}

// request has the daemon apply the revision. One that it reported before another was requested of it is to
// be reported anew: the host may be between the two.
func (m Marks) request(node *corev1.Node) {
	requested := node.Annotations[contract.DesiredRevisionAnnotation]
	if m.Revision == "" || m.Revision == requested {
		return
	}
	if requested != "" && node.Annotations[contract.RevisionAnnotation] == m.Revision {
		delete(node.Annotations, contract.RevisionAnnotation)
	}
	node.Annotations[contract.DesiredRevisionAnnotation] = m.Revision
}

// taint puts os=Windows:NoSchedule first and adds the instance's own taints.
func (m Marks) taint(node *corev1.Node) {
	var spec []corev1.Taint
	var had []string
	if !m.Bare {
		spec, had = m.Instance.Spec.Taints, m.Instance.Status.NodeTaints
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		isOf := func(wanted corev1.Taint) bool { return wanted.MatchTaint(&t) }
		return slices.Contains(had, taintID(t)) && !slices.ContainsFunc(spec, isOf)
	})
	os := corev1.Taint{Key: contract.TaintKey, Value: contract.TaintValue, Effect: corev1.TaintEffectNoSchedule}
	place := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&os) })
	switch {
	case place < 0:
		node.Spec.Taints = slices.Insert(node.Spec.Taints, 0, os)
	case place > 0:
		node.Spec.Taints = slices.Insert(slices.Delete(node.Spec.Taints, place, place+1), 0, os)
	}
	for _, wanted := range spec {
		if place = slices.IndexFunc(node.Spec.Taints,
			func(t corev1.Taint) bool { return t.MatchTaint(&wanted) }); place < 0 {
			node.Spec.Taints = append(node.Spec.Taints, wanted)
		} else {
			node.Spec.Taints[place].Value = wanted.Value
		}
	}
}

// noteMarks writes down which labels and taints the Node has from the spec. It belongs after a write,
// and is in the instance: a node may change its own annotations, and must not have taints removed.
func noteMarks(instance *v1alpha1.WindowsInstance) {
	var taints []string
	for _, t := range instance.Spec.Taints {
		taints = append(taints, taintID(t))
	}
	instance.Status.NodeLabels = slices.Sorted(maps.Keys(instance.Spec.Labels))
	instance.Status.NodeTaints = taints
}

// refusal says which labels and taints the API server refuses, and why: by a right or a policy, by a webhook, which
// may say so without a code, or as not valid. Trying again does not help, unlike with all else. Nil for that.
func (m Marks) refusal(node string, err error) error {
	if m.Bare || !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) &&
		!apierrors.IsBadRequest(err) {
		return nil
	}
	var taints []string
	for _, t := range m.Instance.Spec.Taints {
		taints = append(taints, t.ToString())
	}
	what := ""
	if len(m.Instance.Spec.Labels)+len(taints) > 0 {
		what = fmt.Sprintf(" with the labels %.300q and the taints %.300q",
			labels.Set(m.Instance.Spec.Labels).String(), strings.Join(taints, ","))
	}
	return refused{contract.NewProblem(contract.ReasonLabelsRefused, "node %s%s: %.500s", node, what, err.Error()), err}
}

// refused is a problem that the API server answered.
type refused struct {
	*contract.Problem
	answer error
}

// Unwrap has both found: what users read, and what tells an answer from none.
func (r refused) Unwrap() []error { return []error{r.Problem, r.answer} }

func taintID(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// Foreign answers a problem when a Node can't be this instance's. One that the cloud calls
// otherwise than the instance is another host's, whatever marks it bears; the one that was adopted
// stays ours, whichever instance its kubelet names. A Node without our mark is taken when it is a
// Windows node with the host's address: kubelet has just registered it, or an earlier operator left
// it. What the host itself says of its address counts only for a Node that it registered itself.
func Foreign(node *corev1.Node, instance *v1alpha1.WindowsInstance) *contract.Problem {
	// Clouds and their machine controllers don't agree on the case of what is the same to the
	// cloud.
	if wanted := instance.Spec.ProviderID; wanted != "" && node.Spec.ProviderID != "" &&
		!strings.EqualFold(wanted, node.Spec.ProviderID) {
		return contract.NewProblem(contract.ReasonNodeForeign,
			"node %s is %.300q to the cloud, and instance %s is %.300q", node.Name, node.Spec.ProviderID, instance.Name,
			wanted)
	}
	if uid := instance.Status.NodeUID; uid != "" && uid == string(node.UID) {
		return nil
	}
	if owner := node.Annotations[contract.InstanceAnnotation]; owner != "" {
		if owner == reference(instance) {
			return nil
		}
		return contract.NewProblem(contract.ReasonNodeForeign, "node %s belongs to instance %.300s", node.Name, owner)
	}
	if node.Labels[corev1.LabelOSStable] != string(corev1.Windows) {
		return contract.NewProblem(contract.ReasonNodeForeign, "node %s is not a Windows node", node.Name)
	}
	return addressForeign(node, instance)
}

// addressForeign answers a problem when a Node has no address that is known to be the instance's.
func addressForeign(node *corev1.Node, instance *v1alpha1.WindowsInstance) *contract.Problem {
	given := append([]string{instance.Spec.Address, instance.Spec.NodeIP}, instance.Spec.Addresses...)
	claimed := ""
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP || a.Address == "" {
			continue
		}
		if slices.Contains(given, a.Address) {
			return nil
		}
		if host := instance.Status.Host; host != nil && a.Address == host.NodeIP {
			claimed = a.Address
		}
	}
	switch {
	case claimed == "":
		return contract.NewProblem(contract.ReasonNodeForeign, "node %s has none of the host's addresses", node.Name)
	case instance.Status.NodeExpected, hasHostKey(node, instance):
		return nil
	}
	return contract.NewProblem(contract.ReasonNodeForeign, "node %s was there before the host joined, and only the "+
		"host says that its address is %s", node.Name, claimed)
}

// hasHostKey says that the operator wrote the host key on a Node with which the host proves who it is. A
// kubelet may not write it.
func hasHostKey(node *corev1.Node, instance *v1alpha1.WindowsInstance) bool {
	keyType, key, ok := strings.Cut(instance.Status.HostKey, " ")
	return ok && key != "" && node.Annotations[contract.HostKeyTypeAnnotation] == keyType &&
		node.Annotations[contract.HostKeyAnnotation] == key
}

// NodeReadyAt says whether a Node is Ready with this revision applied.
func NodeReadyAt(node *corev1.Node, revision string) bool {
	ready, _ := NodeReady(node)
	return ready && node.Annotations[contract.RevisionAnnotation] == revision
}

// NodeReady reads the Ready condition. Why a node is not Ready, its daemon often knows better.
func NodeReady(node *corev1.Node) (ready bool, message string) {
	c := policy.ReadyCondition(node)
	if c == nil {
		return false, "kubelet has not reported yet"
	}
	return c.Status == corev1.ConditionTrue, fmt.Sprintf("%s: %.300s", c.Reason, c.Message) + ApplyStatus(node)
}

// KubeletReports says that a Node's condition Ready was written by kubelet: where kubelet has not
// reported for long, the cluster's node lifecycle controller writes that it is Unknown.
func KubeletReports(node *corev1.Node) bool {
	c := policy.ReadyCondition(node)
	return c == nil || c.Status != corev1.ConditionUnknown
}

// reference is how a Node names its instance.
func reference(instance *v1alpha1.WindowsInstance) string {
	return instance.Namespace + "/" + instance.Name
}
