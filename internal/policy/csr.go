package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// CSRVerdict is what to do about a certificate request.
type CSRVerdict string

// Verdicts.
//
// Refuse and Deny differ in what other approvers may still do. A kubelet's names are shared ground:
// the approver of cloud machines and administrators decide about them too, and a denial can't be
// taken back, so a kubelet's request that breaks a rule stays pending and is only reported. A
// daemon's identity is ours alone: nobody else has a rule by which to approve it, but
// administrators are told by many guides to approve whatever is pending. A denied request can't be
// approved any more, and its sender learns why at once.
const (
	// CSRIgnore: not our business. Nothing is written.
	CSRIgnore CSRVerdict = "Ignore"
	// CSRWait: ours, and it may become right without a change of the request itself.
	CSRWait CSRVerdict = "Wait"
	// CSRApprove: every rule holds.
	CSRApprove CSRVerdict = "Approve"
	// CSRRefuse: it claims a node of ours and breaks a rule; it is left pending and reported.
	CSRRefuse CSRVerdict = "Refuse"
	// CSRDeny: it claims the daemon of a node of ours and breaks a rule.
	CSRDeny CSRVerdict = "Deny"
)

// CSRDecision is a verdict with its reason.
type CSRDecision struct {
	Verdict CSRVerdict
	Reason  CSRReason
	// Message says in a sentence what was found. Text that came with the request is quoted and cut.
	Message string
	// Instance is the instance whose node is asked for; nil when the request is ignored.
	Instance *CSRInstance
	// Settled says that the request itself is wrong, so nothing that the cluster holds can change
	// the decision.
	Settled bool
}

// CSRInstance is what a decision needs to know of a WindowsInstance.
type CSRInstance struct {
	Namespace, Name string
	// UID only serves to speak of the instance; no rule looks at it.
	UID      types.UID
	NodeName string
	// NodeUID of the Node that was adopted, or empty.
	NodeUID string
	Phase   v1alpha1.Phase
	// Leaving is set once the instance is being deleted.
	Leaving bool
	// Credentials are the ids of the bootstrap tokens that this join was given.
	Credentials []string
	// Given are the addresses that the user or the cloud gave, of which the host says nothing.
	Given []string
	// Addresses are those, and the node address that the host named over SSH.
	Addresses []string
	// Reached is the IP address at which the operator reached the host, with the host key that it
	// expects; empty when unknown. It may be a gateway's, so no certificate holds it because of that.
	Reached string
	// ReachedAt is when that was, or zero, and Port of which service.
	ReachedAt time.Time
	Port      int32
}

// CSRInstanceOf reads what a decision needs from an instance.
func CSRInstanceOf(instance *v1alpha1.WindowsInstance) CSRInstance {
	known := CSRInstance{
		Namespace:   instance.Namespace,
		Name:        instance.Name,
		UID:         instance.UID,
		NodeName:    instance.Status.NodeName,
		NodeUID:     instance.Status.NodeUID,
		Phase:       instance.Status.Phase,
		Leaving:     !instance.DeletionTimestamp.IsZero(),
		Credentials: instance.Status.BootstrapCredentials,
		Given:       append([]string{instance.Spec.Address}, instance.Spec.Addresses...),
		Reached:     instance.Status.HostAddress,
		Port:        instance.Spec.Port,
	}
	if at := instance.Status.HostAddressTime; at != nil {
		known.ReachedAt = at.Time
	}
	if instance.Spec.NodeIP != "" {
		known.Given = append(known.Given, instance.Spec.NodeIP)
	}
	known.Addresses = slices.Clone(known.Given)
	// The host says it of itself: a public one would be anybody's.
	if host := instance.Status.Host; host != nil {
		if ip, err := netip.ParseAddr(host.NodeIP); err == nil && ip.IsPrivate() {
			known.Addresses = append(known.Addresses, host.NodeIP)
		}
	}
	return known
}

// ReachedAfter says whether the host was reached where another one was before: at one address and one port there is
// one machine. Behind different ports of an address, which may be a gateway's, there may be two.
func (i CSRInstance) ReachedAfter(other CSRInstance) bool {
	return AddressText(i.Reached) == AddressText(other.Reached) && i.Port == other.Port &&
		i.ReachedAt.After(other.ReachedAt)
}

// reference is how Nodes and the operator's own requests name an instance in
// contract.InstanceAnnotation.
func (i CSRInstance) reference() string { return i.Namespace + "/" + i.Name }

// CSRInput is everything that a decision depends on.
type CSRInput struct {
	CSR *certificatesv1.CertificateSigningRequest
	// Instances are the known instances; at least all those that have the node name that the
	// request claims.
	Instances []CSRInstance
	// Node is the Node of the claimed name as the API server has it now, or nil when there is none.
	// Not from a cache: a Node that a cache doesn't show yet would make a stolen bootstrap
	// credential good for a second certificate.
	Node *corev1.Node
	// CredentialOwner is another instance whose join was given the bootstrap token that the request
	// came with, or empty.
	CredentialOwner string
	// CredentialKeys are the public keys, in DER, for which the bootstrap token that the request
	// came with has got a certificate already.
	CredentialKeys [][]byte
	// OperatorUser is the user name under which the operator itself submits the daemons' first
	// requests.
	OperatorUser string
	// BootstrapUser is the user name with which kubelets request their first certificate.
	BootstrapUser string
	// Elsewhere says for names and addresses of the request which other instance was given them, or
	// which Node that is none of ours has them, in words: "Node master-0".
	Elsewhere map[string]string
	// Found is the same for those at which another of our hosts was reached, or that pods have. That
	// counts less than what this instance was given.
	Found map[string]string
	// Said is the same for those that another of our hosts says it has. That counts less than what this
	// instance was given, and than where its host was reached.
	Said map[string]string
	// Listed is the same for those that another instance was given which has no node yet: perhaps another
	// host, perhaps a second entry for this one. That counts less, too, than what this host named over SSH,
	// where nobody noted at which address that was.
	Listed map[string]string
	// Reserved are addresses that no host has: those of the API server and of pods.
	Reserved []netip.Prefix
	// ReservedNames are those of the API server, in lower case: no node is called so.
	ReservedNames []string
	// ServiceNetwork is the prefix of cluster IPs: no node's certificate may hold an address of it.
	ServiceNetwork netip.Prefix
}

// DecideCSR decides about one certificate request. It reads no clock and no cluster: everything it
// depends on stands in its input.
func DecideCSR(in CSRInput) CSRDecision {
	claim, ours := ClaimOf(in.CSR)
	if !ours && submittedByOperator(in) {
		// Administrators approve what the operator asks for, so it must not stay pending.
		return CSRDecision{Verdict: CSRDeny, Reason: CSRNotRecognised, Settled: true,
			Message: "the operator submits requests for daemons of its nodes only"}
	}
	if !ours {
		return CSRDecision{Verdict: CSRIgnore, Reason: CSRNotOurs,
			Message: "decided already, for another signer, or for no node"}
	}
	var owners []CSRInstance
	for _, instance := range in.Instances {
		if instance.NodeName == claim.NodeName {
			owners = append(owners, instance)
		}
	}
	if len(owners) == 0 {
		return CSRDecision{Verdict: CSRIgnore, Reason: CSRNameForeign,
			Message: "no instance has the node name " + shown(claim.NodeName)}
	}
	if len(owners) > 1 {
		return CSRDecision{Verdict: CSRWait, Reason: CSRNameAmbiguous, Instance: &owners[0], Message: fmt.Sprintf(
			"instances %s and %s both have the node name %s", owners[0].Name, owners[1].Name, shown(claim.NodeName))}
	}
	facts := csrFacts{CSRInput: in, claim: claim, instance: owners[0]}
	rules := rulesFor(claim.Kind)
	for _, rule := range rules.request {
		if broken := rule(facts); broken != nil {
			decision := facts.reject(broken)
			decision.Settled = true
			return decision
		}
	}
	for _, rule := range rules.cluster {
		if broken := rule(facts); broken != nil {
			return facts.reject(broken)
		}
	}
	return facts.approve()
}

// csrFacts is the input of one rule: a claim on the node of exactly one instance.
type csrFacts struct {
	CSRInput
	claim    CSRClaim
	instance CSRInstance
}

// csrFault is a rule that does not hold.
type csrFault struct {
	reason  CSRReason
	message string
	// passing is set when the rule may hold later without a change of the request.
	passing bool
}

// csrRule returns nil when the rule holds.
type csrRule func(f csrFacts) *csrFault

// csrRules are the rules for a kind of request: those about the request itself, and those about
// what the cluster holds.
type csrRules struct {
	request, cluster []csrRule
}

// rulesFor lists the rules for a kind of request. Rules about the request itself come first, so
// that a request that can never be approved is not said to wait; the signature is verified last, as
// it costs most.
func rulesFor(kind CSRKind) csrRules {
	switch kind {
	case CSRKubeletClient:
		return kubeletClientRules()
	case CSRKubeletServing:
		return kubeletServingRules()
	}
	return daemonRules()
}

func (f csrFacts) approve() CSRDecision {
	reason := CSRKubeletApproved
	if f.claim.Kind == CSRDaemon {
		reason = CSRDaemonApproved
	}
	return CSRDecision{Verdict: CSRApprove, Reason: reason, Instance: &f.instance,
		Message: fmt.Sprintf("%s certificate of node %s, which is instance %s", f.claim.Kind, f.claim.NodeName,
			f.instance.Name)}
}

func (f csrFacts) reject(broken *csrFault) CSRDecision {
	verdict := CSRRefuse
	switch {
	case broken.passing:
		verdict = CSRWait
	case f.claim.Kind == CSRDaemon:
		verdict = CSRDeny
	}
	return CSRDecision{Verdict: verdict, Reason: broken.reason, Message: broken.message, Instance: &f.instance}
}

func fault(reason CSRReason, format string, args ...any) *csrFault {
	return &csrFault{reason: reason, message: fmt.Sprintf(format, args...)}
}

func notYet(reason CSRReason, format string, args ...any) *csrFault {
	return &csrFault{reason: reason, message: fmt.Sprintf(format, args...), passing: true}
}

// shownRunes is how much of a foreign text a message repeats: a node name is at most that long in
// practice.
const shownRunes = 63

// shown quotes a text that came with the request, so that it can neither break a log line nor fill
// an event.
func shown(text string) string {
	runes := []rune(text)
	if len(runes) > shownRunes {
		return fmt.Sprintf("%q…", string(runes[:shownRunes]))
	}
	return fmt.Sprintf("%q", text)
}
