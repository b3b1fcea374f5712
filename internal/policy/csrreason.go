package policy

// CSRReason is a CamelCase word for a decision about a certificate request: the reason of the
// condition, the event and the log line.
type CSRReason string

// Reasons of an approval, as users know them.
const (
	// CSRKubeletApproved occurs when every rule for a kubelet's request holds.
	CSRKubeletApproved CSRReason = "WMCOApprove"
	// CSRDaemonApproved occurs when every rule for a daemon's request holds.
	CSRDaemonApproved CSRReason = "WICDAutoApproved"
)

// Reasons to leave a request to others.
const (
	// CSRNotOurs occurs when the request is decided already, is for another signer or names no
	// node.
	CSRNotOurs CSRReason = "CSRNotOurs"
	// CSRNameForeign occurs when no instance of ours has the node name that is asked for.
	CSRNameForeign CSRReason = "CSRNameForeign"
)

// Reasons to wait.
const (
	// CSRNameAmbiguous occurs when two instances have the node name that is asked for.
	CSRNameAmbiguous CSRReason = "CSRNameAmbiguous"
	// CSRInstanceLeaving occurs when the instance is being removed.
	CSRInstanceLeaving CSRReason = "CSRInstanceLeaving"
	// CSRPhaseEarly occurs when the instance is not at the point where such a certificate is due.
	CSRPhaseEarly CSRReason = "CSRPhaseEarly"
	// CSRNodePending occurs when the Node must exist and does not.
	CSRNodePending CSRReason = "CSRNodePending"
	// CSRNodeUnadopted occurs when the Node exists but has not been tied to the instance yet.
	CSRNodeUnadopted CSRReason = "CSRNodeUnadopted"
	// CSRNodeServing occurs when a first certificate is asked for though the Node is Ready with the
	// one it has. When the host was really reinstalled, the Node stops being Ready within a minute.
	CSRNodeServing CSRReason = "CSRNodeServing"
	// CSRCredentialUnknown occurs when a first certificate is asked for with a bootstrap token that
	// no join was given, or whose id is not written down yet.
	CSRCredentialUnknown CSRReason = "CSRCredentialUnknown"
)

// Reasons to refuse.
const (
	// CSRCredentialForeign occurs when a first certificate is asked for with the bootstrap token of
	// another host.
	CSRCredentialForeign CSRReason = "CSRCredentialForeign"
	// CSRNotRecognised occurs when a request of the operator's own is none for a daemon of a node.
	CSRNotRecognised CSRReason = "CSRNotRecognised"
	// CSRKeyOfAnother occurs when a bootstrap token is used for a second key.
	CSRKeyOfAnother CSRReason = "CSRKeyOfAnother"
	// CSRNodeForeign occurs when the Node belongs to another instance, or to none and runs another
	// operating system.
	CSRNodeForeign CSRReason = "CSRNodeForeign"
	// CSRSignerWrong occurs when the request is addressed to a signer that does not sign such
	// certificates.
	CSRSignerWrong CSRReason = "CSRSignerWrong"
	// CSRSubjectWrong occurs when the subject is anything but one common name and one organization,
	// and the right ones.
	CSRSubjectWrong CSRReason = "CSRSubjectWrong"
	// CSRRequesterWrong occurs when somebody else than the owner of the name, or who vouches for
	// it, asks.
	CSRRequesterWrong CSRReason = "CSRRequesterWrong"
	// CSRUsagesWrong occurs when the usages are not exactly the usual ones.
	CSRUsagesWrong CSRReason = "CSRUsagesWrong"
	// CSRNamesForbidden occurs when alternative names are asked for where there must be none, or of
	// a kind that no node has.
	CSRNamesForbidden CSRReason = "CSRNamesForbidden"
	// CSRNamesMissing occurs when a serving certificate is asked for without any name.
	CSRNamesMissing CSRReason = "CSRNamesMissing"
	// CSRNameNotOfNode occurs when an alternative name or address is not the node's, or another has it,
	// too, which the message names. A public address or a name in a domain that only the kubelet
	// reports must be in spec.addresses.
	CSRNameNotOfNode CSRReason = "CSRNameNotOfNode"
	// CSRExtensionForbidden occurs when the request has an extension that no certificate of a node
	// needs.
	CSRExtensionForbidden CSRReason = "CSRExtensionForbidden"
	// CSRLifetimeMissing occurs when a daemon's request names no lifetime.
	CSRLifetimeMissing CSRReason = "CSRLifetimeMissing"
	// CSRLifetimeLong occurs when a certificate would be valid for too long.
	CSRLifetimeLong CSRReason = "CSRLifetimeLong"
	// CSRKeyWeak occurs when the key, or the digest it signs with, is too weak or of an unknown
	// kind.
	CSRKeyWeak CSRReason = "CSRKeyWeak"
	// CSRSignatureWrong occurs when whoever asks does not have the key.
	CSRSignatureWrong CSRReason = "CSRSignatureWrong"
)
