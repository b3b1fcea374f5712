package journey

import (
	"cmp"
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

// NodeFields are the fields that the operator writes on a Node that it manages.
type NodeFields struct {
	Instance *v1alpha1.WindowsInstance
	// KeyHash is the hash of the public key that the host accepted. Revision is the revision that the node should have.
	// If a value is empty, its annotation does not change.
	KeyHash  string
	Revision string
	// Cordon cordons the node until the join or removal is complete.
	Cordon bool
	// Upgrading sets the label of a node with a slot in the rollout budget.
	Upgrading bool
	// Bare omits the spec's labels and taints, so that an upgrade continues even if the API server refuses them.
	Bare bool
}

// Apply writes the fields into a Node in memory.
func (m NodeFields) Apply(node *corev1.Node) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	if !m.Bare {
		for _, key := range m.Instance.Status.NodeMarks {
			delete(node.Labels, key) // has no effect for marks of taints, which have a colon
		}
		maps.Copy(node.Labels, m.Instance.Spec.Labels)
	}
	node.Labels[contract.OSIDLabel] = contract.OSIDWindows
	if source := m.Instance.Spec.Source; source == nil || source.Kind != v1alpha1.SourceMachine {
		node.Labels[contract.BYOHLabel] = "true"
		node.Labels[contract.WorkerLabel] = ""
	}
	// Cluster API removes this taint later, so only a new Node gets it.
	if node.Annotations[contract.InstanceAnnotation] == "" &&
		m.Instance.Annotations[contract.BootstrapConfigAnnotation] != "" {
		node.Spec.Taints = append(node.Spec.Taints,
			corev1.Taint{Key: contract.ClusterAPITaint, Effect: corev1.TaintEffectNoSchedule})
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

// request sets the desired revision. If the node reports this revision although another one was requested last, the
// report may be outdated: the host may be between the two revisions. So the report is deleted.
func (m NodeFields) request(node *corev1.Node) {
	requested := node.Annotations[contract.DesiredRevisionAnnotation]
	if m.Revision == "" || m.Revision == requested {
		return
	}
	if requested != "" && node.Annotations[contract.RevisionAnnotation] == m.Revision {
		delete(node.Annotations, contract.RevisionAnnotation)
	}
	node.Annotations[contract.DesiredRevisionAnnotation] = m.Revision
}

// taint makes os=Windows:NoSchedule the first taint, adds the spec's taints, and removes taints that left the spec.
func (m NodeFields) taint(node *corev1.Node) {
	var spec []corev1.Taint
	var had []string
	if !m.Bare {
		spec, had = m.Instance.Spec.Taints, m.Instance.Status.NodeMarks
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		isOf := func(wanted corev1.Taint) bool { return wanted.MatchTaint(&t) }
		return slices.Contains(had, taintID(t)) && !slices.ContainsFunc(spec, isOf)
	})
	os := corev1.Taint{Key: contract.TaintKey, Value: contract.TaintValue, Effect: corev1.TaintEffectNoSchedule}
	index := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&os) })
	switch {
	case index < 0:
		node.Spec.Taints = slices.Insert(node.Spec.Taints, 0, os)
	case index > 0:
		node.Spec.Taints = slices.Insert(slices.Delete(node.Spec.Taints, index, index+1), 0, os)
	}
	for _, wanted := range spec {
		if index = slices.IndexFunc(node.Spec.Taints,
			func(t corev1.Taint) bool { return t.MatchTaint(&wanted) }); index < 0 {
			node.Spec.Taints = append(node.Spec.Taints, wanted)
		} else {
			node.Spec.Taints[index].Value = wanted.Value
		}
	}
}

// The method `written` records in the status which labels and taints of the Node come from the spec, or returns why the
// API server refused them. Don't record them in an annotation of the Node: kubelet may change its annotations, and
// could make the operator remove other taints.
func (m NodeFields) written(node *corev1.Node, err error) error {
	switch {
	case err != nil:
		return cmp.Or(m.refusal(node.Name, err), fmt.Errorf("marking node %s: %w", node.Name, err))
	case m.Bare:
		return nil
	}
	m.Instance.Status.NodeMarks = slices.Sorted(maps.Keys(m.Instance.Spec.Labels))
	for _, t := range m.Instance.Spec.Taints {
		m.Instance.Status.NodeMarks = append(m.Instance.Status.NodeMarks, taintID(t))
	}
	return nil
}

// refusal returns a problem if the API server refuses labels or taints permanently: the operator lacks a right, a
// policy or a webhook forbids them, or they are invalid. For other errors, refusal returns nil.
func (m NodeFields) refusal(node string, err error) error {
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

// refused is a problem that also contains the error of the API server.
type refused struct {
	*contract.Problem
	answer error
}

func (r refused) Unwrap() []error { return []error{r.Problem, r.answer} }

func taintID(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

// Foreign returns a problem if a Node can't belong to this instance. Different provider IDs always mean different
// hosts. A Node that the instance has adopted belongs to the instance. The instance may adopt a Windows node without
// the operator's mark if the node has the host's address: kubelet has just registered it, or an earlier operator left
// it behind. But if only the host itself reports this address, the node must not be older than the join.
func Foreign(node *corev1.Node, instance *v1alpha1.WindowsInstance) *contract.Problem {
	// Clouds and their machine controllers don't agree on the case of a provider ID.
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
	case instance.Status.Joined(), awaitsNode(&instance.Status), hasHostKey(node, instance):
		return nil
	}
	return contract.NewProblem(contract.ReasonNodeForeign, "node %s was there before the host joined, and only the "+
		"host says that its address is %s", node.Name, claimed)
}

// hasHostKey reports whether a Node has this instance's host key in annotations, which kubelets may not write.
func hasHostKey(node *corev1.Node, instance *v1alpha1.WindowsInstance) bool {
	keyType, key, ok := strings.Cut(instance.Status.HostKey, " ")
	return ok && key != "" && node.Annotations[contract.HostKeyTypeAnnotation] == keyType &&
		node.Annotations[contract.HostKeyAnnotation] == key
}

// NodeReadyAt reports whether a Node is Ready with this revision applied.
func NodeReadyAt(node *corev1.Node, revision string) bool {
	ready, _ := NodeReady(node)
	return ready && node.Annotations[contract.RevisionAnnotation] == revision
}

// NodeReady reads the Ready condition. The message contains the daemon's report, which may explain more.
func NodeReady(node *corev1.Node) (ready bool, message string) {
	c := policy.ReadyCondition(node)
	if c == nil {
		return false, "kubelet has not reported yet"
	}
	return c.Status == corev1.ConditionTrue, fmt.Sprintf("%s: %.300s", c.Reason, c.Message) + ApplyStatus(node)
}

// KubeletReports reports whether kubelet wrote a Node's condition Ready. If kubelet has not reported for long,
// Kubernetes sets the condition to Unknown.
func KubeletReports(node *corev1.Node) bool {
	c := policy.ReadyCondition(node)
	return c == nil || c.Status != corev1.ConditionUnknown
}

func reference(instance *v1alpha1.WindowsInstance) string {
	return instance.Namespace + "/" + instance.Name
}
