package scene

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// RolloutIdle reports whether all of the given number of nodes have the current settings, according to the operator's
// status. It returns false if the operator has not observed the current generation, or if a problem keeps the operator
// from publishing new settings.
func RolloutIdle(config *v1alpha1.WindowsMachineConfig, nodes int) bool {
	status := config.Status.Rollout
	seen := !slices.ContainsFunc(config.Status.Conditions, func(c metav1.Condition) bool {
		return c.ObservedGeneration != config.Generation
	})
	seen = seen && meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.ConditionAvailable)
	return seen && status.Phase == v1alpha1.RolloutIdle && status.Revision == config.Status.DesiredRevision &&
		int(status.Updated) == nodes
}

// Unsettled returns the reasons why the scene hasn't converged. It is empty if these conditions hold: the number of
// hosts is right, each host is a Ready node in service at the desired revision, no instance fails or holds a slot in
// the rollout budget, no rollout is in progress, and no certificate request is pending. Exception: requests that
// kubelet gave up may be pending.
func (s *Scene) Unsettled(ctx context.Context, hosts int) ([]string, error) {
	now := state{namespace: s.options.Namespace, config: &v1alpha1.WindowsMachineConfig{}, places: &corev1.ConfigMap{}}
	if err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, now.config); err != nil {
		return nil, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	if err := s.Client.List(ctx, &now.instances, client.InNamespace(s.options.Namespace)); err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	if err := s.Client.List(ctx, &now.nodes, client.MatchingLabels{corev1.LabelOSStable: "windows"}); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	if err := s.Client.List(ctx, &now.requests); err != nil {
		return nil, fmt.Errorf("listing certificate requests: %w", err)
	}
	key := client.ObjectKey{Namespace: s.options.Namespace, Name: contract.SlotsConfigMap}
	if err := s.Client.Get(ctx, key, now.places); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the list of slots: %w", err)
	}
	return now.unsettled(hosts), nil
}

// state contains the objects that unsettled checks.
type state struct {
	namespace string // the operator's namespace
	config    *v1alpha1.WindowsMachineConfig
	instances v1alpha1.WindowsInstanceList
	nodes     corev1.NodeList
	requests  certificatesv1.CertificateSigningRequestList
	// places is the ConfigMap that lists which hosts hold slots in the rollout budget.
	places *corev1.ConfigMap
}

// unsettled returns the reasons why a state is not the final state.
func (s state) unsettled(hosts int) (behind []string) {
	if len(s.instances.Items) != hosts || len(s.nodes.Items) != hosts {
		behind = append(behind, fmt.Sprintf("%d instances and %d nodes of %d hosts", len(s.instances.Items),
			len(s.nodes.Items), hosts))
	}
	nodes := map[string]*corev1.Node{}
	for i := range s.nodes.Items {
		nodes[s.nodes.Items[i].Name] = &s.nodes.Items[i]
	}
	desired := s.config.Status.DesiredRevision
	for i := range s.instances.Items {
		one := &s.instances.Items[i]
		for _, what := range append(unsettledInstance(one), unsettledNode(nodes[one.Status.NodeName], desired)...) {
			behind = append(behind, one.Name+" "+what)
		}
	}
	behind = append(behind, s.heldPlaces()...)
	for _, r := range s.requests.Items {
		if len(r.Status.Conditions) == 0 && !s.isGivenUp(&r) {
			behind = append(behind, pending(&r))
		}
	}
	if !RolloutIdle(s.config, hosts) {
		status := s.config.Status.Rollout
		behind = append(behind, fmt.Sprintf("the rollout of %s is %s with %d of %d updated: %s", status.Revision,
			status.Phase, status.Updated, status.Total, status.Message))
		if c := meta.FindStatusCondition(s.config.Status.Conditions, v1alpha1.ConditionAvailable); c != nil &&
			c.Status != metav1.ConditionTrue {
			behind = append(behind, fmt.Sprintf("settings are not published: %s: %s", c.Reason, c.Message))
		}
	}
	return behind
}

// isGivenUp reports whether kubelet has given up a pending request for its first certificate. This is the case if the
// token of the request belongs to a join that has ended. For example, kubelet didn't get the response to its request,
// and sent a second request with a new key. The operator never denies the first request, because other approvers may
// still approve it.
func (s state) isGivenUp(request *certificatesv1.CertificateSigningRequest) bool {
	token := policy.CredentialOf(request)
	if token == "" || !policy.IsFirstKubeletRequest(request, contract.BootstrapUser(s.namespace)) {
		return false
	}
	return !slices.ContainsFunc(s.instances.Items, func(i v1alpha1.WindowsInstance) bool {
		return slices.Contains(i.Status.BootstrapCredentials, token)
	})
}

// The function pending describes a pending request. The description includes the node and the credential, because the
// name of the requester is the same for all hosts that join.
func pending(request *certificatesv1.CertificateSigningRequest) string {
	line := fmt.Sprintf("certificate request %s of %s is pending since %s", request.Name, request.Spec.Username,
		request.CreationTimestamp.UTC().Format(time.TimeOnly))
	if claim, ours := policy.ClaimOf(request); ours {
		line += fmt.Sprintf(", for the %s certificate of node %s", claim.Kind, claim.NodeName)
	}
	if token := policy.CredentialOf(request); token != "" {
		line += ", with the credential " + token
	}
	return line
}

// unsettledInstance returns the reasons why an instance waits or fails.
func unsettledInstance(i *v1alpha1.WindowsInstance) (behind []string) {
	status := i.Status
	if status.Phase != v1alpha1.PhaseReady || status.Reason() != string(contract.ReasonNodeReady) {
		behind = append(behind, fmt.Sprintf("is %s %s: %s", status.Phase, status.Reason(), status.Message()))
	}
	if status.Failures != 0 {
		behind = append(behind, fmt.Sprintf("has failed %d times", status.Failures))
	}
	if status.FailedRevision != "" {
		behind = append(behind, "failed at "+status.FailedRevision)
	}
	if status.Slot != nil {
		behind = append(behind, "holds a slot in the rollout budget")
	}
	return behind
}

// unsettledNode returns the reasons why a node isn't in service at the desired revision. If the node doesn't exist,
// this is also a reason.
func unsettledNode(n *corev1.Node, desired string) (behind []string) {
	if n == nil {
		return []string{"has no node"}
	}
	if !policy.IsReady(n) {
		behind = append(behind, "is not Ready")
	}
	if n.Spec.Unschedulable {
		behind = append(behind, "is cordoned")
	}
	if at := n.Annotations[contract.RevisionAnnotation]; at != desired ||
		n.Annotations[contract.DesiredRevisionAnnotation] != desired {
		behind = append(behind, fmt.Sprintf("is at revision %s and must be at %s", at, desired))
	}
	for _, asks := range []string{contract.CordonedAnnotation, contract.RebootRequestedAnnotation,
		contract.RebootRequiredAnnotation, contract.RebootApprovedAnnotation} {
		if _, there := n.Annotations[asks]; there {
			behind = append(behind, "has the annotation "+asks)
		}
	}
	if _, there := n.Labels[contract.UpgradingLabel]; there {
		behind = append(behind, "has the label "+contract.UpgradingLabel)
	}
	return behind
}

// heldPlaces returns a reason for each slot in the rollout budget that an instance holds.
func (s state) heldPlaces() (held []string) {
	var given []struct {
		Name string `json:"name"`
	}
	if text := s.places.Data["places"]; text != "" && json.Unmarshal([]byte(text), &given) != nil {
		return []string{"the list of slots can't be read"}
	}
	for _, g := range given {
		for i := range s.instances.Items {
			one := &s.instances.Items[i]
			if string(one.UID) == g.Name {
				held = append(held, one.Name+" has a slot in the rollout budget")
			}
		}
	}
	return held
}
