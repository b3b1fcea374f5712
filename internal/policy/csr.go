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

// CSRVerdict is what the operator does about a certificate request.
type CSRVerdict string

// Verdicts.
//
// A refused request stays pending, and someone else can approve it. A denial is final. Administrators and the approver
// of cloud machines also decide about kubelets' requests, so the operator only refuses these. It denies a daemon's
// request, about which only this operator decides. Otherwise an administrator could approve it, because many guides say
// to approve every pending request. After a denial, the sender learns the reason at once.
const (
	// CSRIgnore: the request is not for this operator. Nothing is written.
	CSRIgnore CSRVerdict = "Ignore"
	// CSRWait: the request may become valid without a change of the request itself.
	CSRWait CSRVerdict = "Wait"
	// CSRApprove: every rule holds.
	CSRApprove CSRVerdict = "Approve"
	// CSRRefuse: the request claims a node of the operator and breaks a rule. The request stays pending and is
	// reported.
	CSRRefuse CSRVerdict = "Refuse"
	// CSRDeny: the request claims a daemon on a node of the operator, or a host that joins by itself, and breaks a
	// rule.
	CSRDeny CSRVerdict = "Deny"
)

// CSRDecision is a verdict with its reason.
type CSRDecision struct {
	Verdict CSRVerdict
	Reason  CSRReason
	// Message is a sentence with the finding. Text from the request is quoted and cut.
	Message string
	// Instance is the instance of the requested node, or nil if the request is ignored.
	Instance *CSRInstance
	// Settled reports that the request itself is invalid, so that no change in the cluster can change the
	// decision.
	Settled bool
}

// CSRInstance is the part of a WindowsInstance that a decision needs.
type CSRInstance struct {
	Namespace, Name string
	UID             types.UID
	// HostID identifies a host that joins by itself: see HostID. Machine is set if the host joins by itself with the
	// user data of this Machine.
	HostID   string
	Machine  *v1alpha1.Source
	NodeName string
	// NodeUID of the Node that was adopted, or empty.
	NodeUID string
	Phase   v1alpha1.Phase
	// Leaving is set if the instance is being deleted.
	Leaving bool
	// Credentials are the ids of the bootstrap tokens of this join.
	Credentials []string
	// Given are the addresses from the user or the cloud. The host has no influence on them.
	Given []string
	// Addresses are Given and the node address that the host reported over SSH.
	Addresses []string
	// Reached is where the operator reached the host with the expected host key: an IP address, or empty. It may be
	// a gateway's address, so it does not justify a certificate.
	Reached string
	// ReachedAt is when the host was reached, or zero. Port is the port of Reached.
	ReachedAt time.Time
	Port      int32
}

// CSRInstanceOf returns the part of an instance that a decision needs.
func CSRInstanceOf(instance *v1alpha1.WindowsInstance) CSRInstance {
	known := CSRInstance{
		Namespace:   instance.Namespace,
		Name:        instance.Name,
		UID:         instance.UID,
		HostID:      HostID(instance),
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

// ReachedAfter reports whether this host was reached later at the same address and port as another host. One address
// and port belong to one machine. Different ports of an address may belong to two machines, because the address may be
// a gateway's.
func (i CSRInstance) ReachedAfter(other CSRInstance) bool {
	return AddressText(i.Reached) == AddressText(other.Reached) && i.Port == other.Port &&
		i.ReachedAt.After(other.ReachedAt)
}

// reference is the instance's name in contract.InstanceAnnotation of Nodes and of the operator's own
// requests.
func (i CSRInstance) reference() string { return i.Namespace + "/" + i.Name }

// CSRInput is everything that a decision depends on.
type CSRInput struct {
	CSR *certificatesv1.CertificateSigningRequest
	// Instances are at least all instances with the node name that the request claims.
	Instances []CSRInstance
	// Node is the Node of the claimed name, or nil. It may come from a cache, except for a refusal or a denial.
	Node *corev1.Node
	// CredentialOwner is another instance whose join has the bootstrap token of the request, or empty.
	CredentialOwner string
	// CredentialKeys are the public keys, in DER, that already got a certificate with this bootstrap token.
	CredentialKeys [][]byte
	// JoinCredentials are the ids of the tokens that may request the certificate of a host that joins by itself: the
	// token in its published command, or the tokens in the user data of Machines. JoinKey is the digest of the public
	// key that got a certificate with the token of the command, or empty.
	JoinCredentials []string
	JoinKey         string
	// Machine of the instance, or nil if it doesn't exist or has other user data.
	Machine *CSRMachine
	// OperatorUser is the operator's user name in the daemons' first requests.
	OperatorUser string
	// BootstrapUser is the user name in kubelets' requests for their first certificate.
	BootstrapUser string
	// Elsewhere maps names and addresses of the request to another owner: an instance that was given them, or
	// a Node that isn't ours, such as "Node master-0".
	Elsewhere map[string]string
	// Found is like Elsewhere, for addresses where the operator reached another host, and addresses of pods. They count
	// less than the addresses that were given to this instance.
	Found map[string]string
	// ReportedElsewhere is like Elsewhere, for addresses that another host of the operator reports. They count less
	// than the addresses that were given to this instance, and less than the address where its host was reached.
	ReportedElsewhere map[string]string
	// Listed is like Elsewhere, for addresses that were given to another instance without a node: another host, or a
	// second entry for this host. If the address where this host was reached is unknown, they also count less than this
	// host's reports over SSH.
	Listed map[string]string
	// Reserved are addresses that no host may have: the API server's and those of pods.
	Reserved []netip.Prefix
	// ReservedNames are the names of the API server, in lower case. No node may use them.
	ReservedNames []string
	// ServiceNetwork is the prefix of cluster IPs: no node's certificate may hold an address of it.
	ServiceNetwork netip.Prefix
}

// CSRMachine is the part of a Machine that a decision needs.
type CSRMachine struct {
	CreatedAt time.Time
	// NodeRef is the name of its Node, or empty.
	NodeRef string
}

// DecideCSR decides about one certificate request. It uses its input only: no clock, no cluster.
func DecideCSR(in CSRInput) CSRDecision {
	claim, ours := ClaimOf(in.CSR)
	if !ours && submittedByOperator(in) {
		// Administrators approve the operator's own requests, so such a request must not stay pending.
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

// csrFacts is the input of one rule: a claim on the node of exactly one instance.
type csrFacts struct {
	CSRInput
	claim    CSRClaim
	instance CSRInstance
}

// csrFault is a broken rule.
type csrFault struct {
	reason  CSRReason
	message string
	// passing reports that the rule may hold later without a change of the request.
	passing bool
}

// csrRule returns nil when the rule holds.
type csrRule func(f csrFacts) *csrFault

// csrRules are the rules for a kind of request: rules about the request itself, and rules about the state of
// the cluster.
type csrRules struct {
	request, cluster []csrRule
}

// rulesFor lists the rules for a kind of request. Rules about the request itself come first, so that a
// request that can never be approved doesn't wait. The signature is verified last because it is the most
// expensive check.
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

// shown quotes text from a request, so that it can neither break a log line nor fill an event.
func shown(text string) string {
	runes := []rune(text)
	if len(runes) > shownRunes {
		return fmt.Sprintf("%q…", string(runes[:shownRunes]))
	}
	return fmt.Sprintf("%q", text)
}
