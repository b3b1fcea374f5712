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

// CSRVerdict is the operator's decision about a certificate request.
type CSRVerdict string

// A refused request stays pending, so others can still approve it. A denial is final. If a kubelet's request breaks a
// rule, the operator refuses it, because administrators and the approver of cloud machines also decide about it. Other
// requests that break a rule are denied, because many guides tell administrators to approve all pending requests.
const (
	// CSRIgnore: the request is not for this operator. Nothing is written.
	CSRIgnore CSRVerdict = "Ignore"
	// CSRWait: the request breaks a rule now, but may obey it later without being changed.
	CSRWait CSRVerdict = "Wait"
	// CSRApprove: the request obeys every rule.
	CSRApprove CSRVerdict = "Approve"
	// CSRRefuse: the request is for kubelet on an operator's node, and breaks a rule. It stays pending and is reported.
	CSRRefuse CSRVerdict = "Refuse"
	// CSRDeny: the request is for a daemon on an operator's node or a host that joins by itself, and breaks a rule.
	CSRDeny CSRVerdict = "Deny"
)

// CSRDecision is a verdict with its reason.
type CSRDecision struct {
	Verdict CSRVerdict
	Reason  CSRReason
	// Message is a sentence that describes the decision. Text from the request is quoted and shortened.
	Message string
	// Instance is the instance of the requested node, or nil if the request is ignored.
	Instance *CSRInstance
	// Settled reports that the request itself is invalid, so no change in the cluster can lead to a different decision.
	Settled bool
}

// CSRInstance is the part of a WindowsInstance that a decision needs.
type CSRInstance struct {
	Namespace, Name string
	UID             types.UID
	// HostID identifies a host that joins by itself: see the function HostID. Machine is set if the host joins by
	// itself with the user data of this Machine.
	HostID  string
	Machine *v1alpha1.Source
	// HostKey is the digest of the key in the first certificate of a host that joins by itself, or empty.
	HostKey  string
	NodeName string
	// NodeUID is the UID of the Node that was adopted for this instance, or empty.
	NodeUID string
	Phase   v1alpha1.Phase
	// Leaving is set if the instance is being deleted.
	Leaving bool
	// Credentials are the ids of the bootstrap tokens that were created for the current join.
	Credentials []string
	// Given are the addresses that the user or the cloud assigned. The host can't influence them.
	Given []string
	// Addresses are the addresses in Given and the node address that the host reported over SSH.
	Addresses []string
	// Reached is the IP address where the operator reached the host with the expected host key, or empty. It may be a
	// gateway's address, so it alone doesn't justify a certificate.
	Reached string
	// ReachedAt is when the host was reached, or zero. Port is the port at the address Reached.
	ReachedAt time.Time
	Port      int32
}

// CSRInstanceOf returns the parts of an instance that a decision needs.
func CSRInstanceOf(instance *v1alpha1.WindowsInstance) CSRInstance {
	known := CSRInstance{
		Namespace:   instance.Namespace,
		Name:        instance.Name,
		UID:         instance.UID,
		HostID:      HostID(instance),
		HostKey:     firstKey(instance),
		Machine:     machineOf(instance),
		NodeName:    instance.Status.NodeName,
		NodeUID:     instance.Status.NodeUID,
		Phase:       instance.Status.Phase,
		Leaving:     !instance.DeletionTimestamp.IsZero(),
		Credentials: instance.Status.BootstrapCredentials,
		Given:       append([]string{instance.Spec.Address}, instance.Spec.Addresses...),
		Port:        instance.Spec.Port,
	}
	if instance.Spec.NodeIP != "" {
		known.Given = append(known.Given, instance.Spec.NodeIP)
	}
	known.Addresses = slices.Clone(known.Given)
	if host := instance.Status.Host; host != nil {
		if known.Reached = host.Address; host.Time != nil {
			known.ReachedAt = host.Time.Time
		}
		// Accept private addresses only: a host could report any public address.
		if ip, err := netip.ParseAddr(host.NodeIP); err == nil && ip.IsPrivate() {
			known.Addresses = append(known.Addresses, host.NodeIP)
		}
	}
	return known
}

// ReachedAfter reports whether the operator reached this host later than the other host, at the same address and port.
// If so, this host now has the address. Different ports of one address may belong to two machines behind a gateway.
func (i CSRInstance) ReachedAfter(other CSRInstance) bool {
	return AddressText(i.Reached) == AddressText(other.Reached) && i.Port == other.Port &&
		i.ReachedAt.After(other.ReachedAt)
}

// reference returns the instance's name as in contract.InstanceAnnotation, on Nodes and on the operator's requests.
func (i CSRInstance) reference() string { return i.Namespace + "/" + i.Name }

// CSRInput is everything that a decision depends on.
type CSRInput struct {
	CSR *certificatesv1.CertificateSigningRequest
	// Instances contains at least all instances with the requested node name.
	Instances []CSRInstance
	// Node is the Node with the requested name, or nil. For a refusal or a denial, it must be read from the API server.
	// Otherwise, it may come from a cache.
	Node *corev1.Node
	// CredentialOwner is the name of the instance whose join has the bootstrap token of the request, or empty.
	CredentialOwner string
	// CredentialKeys are the public keys, in DER, that already got certificates with this bootstrap token.
	CredentialKeys [][]byte
	// JoinCredentials are the ids of the tokens that may request the certificate of a host that joins by itself: the
	// token in its published command, or the tokens in the user data of Machines.
	JoinCredentials []string
	// Machine is the Machine of the instance, or nil if the Machine doesn't exist or has other user data.
	Machine *CSRMachine
	// OperatorUser is the user name of the operator, which submits a daemon's first request.
	OperatorUser string
	// BootstrapUser is the user name in kubelets' requests for their first certificate.
	BootstrapUser string
	// Elsewhere maps names and addresses in the request to another owner, such as "Node master-0". The owner is an
	// instance that got the name or address from the user or the cloud, or a Node that isn't this operator's.
	Elsewhere map[string]string
	// Found is like Elsewhere, for addresses where the operator reached another host, and for addresses of pods. It is
	// ignored for addresses that the user or the cloud assigned to this instance.
	Found map[string]string
	// ReportedElsewhere is like Elsewhere, for addresses that another host of the operator reports. It is ignored for
	// addresses that the user or the cloud assigned to this instance, and for the address where the host of this
	// instance was reached.
	ReportedElsewhere map[string]string
	// Listed is like Elsewhere, for addresses that were assigned to another instance without a node. That instance may
	// be another host, or a second entry for this host. Listed is ignored in the same cases as ReportedElsewhere. While
	// it is unknown where this host was reached, Listed is also ignored for addresses that this host reported over SSH.
	Listed map[string]string
	// Reserved are addresses that no host may have: the addresses of the API server and of pods.
	Reserved []netip.Prefix
	// ReservedNames are the names of the API server, in lower case. No node may use them.
	ReservedNames []string
	// ServiceNetwork is the prefix of cluster IPs. No node's certificate may contain an address in it.
	ServiceNetwork netip.Prefix
}

// CSRMachine is the part of a Machine that a decision needs.
type CSRMachine struct {
	CreatedAt time.Time
	// NodeRef is the name of the Machine's Node, or empty.
	NodeRef string
}

// DecideCSR decides about one certificate request. Only the input determines the decision, not a clock or the cluster.
func DecideCSR(in CSRInput) CSRDecision {
	claim, ours := ClaimOf(in.CSR)
	if !ours && submittedByOperator(in) {
		// Deny: administrators approve pending requests of the operator, so an invalid one must not stay pending.
		return CSRDecision{Verdict: CSRDeny, Reason: CSRNotRecognised, Settled: true,
			Message: "the operator submits requests for daemons of its nodes only"}
	}
	if !ours {
		return CSRDecision{Verdict: CSRIgnore, Reason: CSRNotOurs,
			Message: "decided already, for another signer, or for no node"}
	}
	var owners []CSRInstance
	for _, instance := range in.Instances {
		if claim.IsOf(instance) {
			owners = append(owners, instance)
		}
	}
	if len(owners) == 0 {
		return CSRDecision{Verdict: CSRIgnore, Reason: CSRNameForeign,
			Message: "no instance is " + claim.subject()}
	}
	if len(owners) > 1 {
		return CSRDecision{Verdict: CSRWait, Reason: CSRNameAmbiguous, Instance: &owners[0], Message: fmt.Sprintf(
			"instances %s and %s are both %s", owners[0].Name, owners[1].Name, claim.subject())}
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

// csrFacts is the input of one rule: a request for the identity of exactly one instance's node.
type csrFacts struct {
	CSRInput
	claim    CSRClaim
	instance CSRInstance
}

type csrFault struct {
	reason  CSRReason
	message string
	// passing reports that the request may obey the rule later, without being changed.
	passing bool
}

// csrRule checks one rule. It returns nil if the request obeys the rule.
type csrRule func(f csrFacts) *csrFault

// csrRules are the rules for one kind of request: about the request itself, and about the state of the cluster.
type csrRules struct {
	request, cluster []csrRule
}

// rulesFor returns the rules for a kind of request. The rules about the request come first, because a request that can
// never be approved must not wait for the cluster. The last of these rules checks the signature, which is expensive.
func rulesFor(kind CSRKind) csrRules {
	switch kind {
	case CSRKubeletClient:
		return kubeletClientRules()
	case CSRKubeletServing:
		return kubeletServingRules()
	case CSRHost:
		return hostRules()
	}
	return daemonRules()
}

func (f csrFacts) approve() CSRDecision {
	reason := CSRKubeletApproved
	switch f.claim.Kind {
	case CSRDaemon:
		reason = CSRDaemonApproved
	case CSRHost:
		return CSRDecision{Verdict: CSRApprove, Reason: CSRHostApproved, Instance: &f.instance,
			Message: "certificate of the host of instance " + f.instance.Name + ", which joins by itself"}
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
	case f.claim.Kind == CSRDaemon, f.claim.Kind == CSRHost:
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

// shownRunes is the maximum length of foreign text in a message, and the practical maximum of a node name.
const shownRunes = 63

// The function `shown` quotes text from a request, so that it can neither break a log line nor fill an event.
func shown(text string) string {
	runes := []rune(text)
	if len(runes) > shownRunes {
		return fmt.Sprintf("%q…", string(runes[:shownRunes]))
	}
	return fmt.Sprintf("%q", text)
}
