package policy

// CSRReason is a CamelCase reason for a decision about a certificate request. The condition, the event and
// the log line use it.
type CSRReason string

// Reasons to approve a request.
const (
	// CSRKubeletApproved occurs when every rule for a kubelet's request holds.
	CSRKubeletApproved CSRReason = "WMCOApprove"
	// CSRDaemonApproved occurs when every rule for a daemon's request holds.
	CSRDaemonApproved CSRReason = "WICDAutoApproved"
	// CSRHostApproved occurs when every rule for the request of a host that joins by itself holds.
	CSRHostApproved CSRReason = "HostApproved"
)

// Reasons to ignore a request.
const (
	// CSRNotOurs occurs when the request is decided already, is for another signer or names no node.
	CSRNotOurs CSRReason = "CSRNotOurs"
	// CSRNameForeign occurs when none of our instances has the requested node name.
	CSRNameForeign CSRReason = "CSRNameForeign"
)

// Reasons to wait.
const (
	// CSRNameAmbiguous occurs when two instances have the requested node name.
	CSRNameAmbiguous CSRReason = "CSRNameAmbiguous"
	// CSRInstanceLeaving occurs when the instance is being removed.
	CSRInstanceLeaving CSRReason = "CSRInstanceLeaving"
	// CSRPhaseEarly occurs when the instance's join hasn't reached the phase for such a certificate.
	CSRPhaseEarly CSRReason = "CSRPhaseEarly"
	// CSRNodePending occurs when a required Node doesn't exist yet.
	CSRNodePending CSRReason = "CSRNodePending"
	// CSRNodeUnadopted occurs when the Node exists but isn't bound to the instance yet.
	CSRNodeUnadopted CSRReason = "CSRNodeUnadopted"
	// CSRNodeServing occurs when a first certificate is requested although the Node is Ready with its current
	// certificate. If the host was really reinstalled, the Node becomes not Ready within a minute.
	CSRNodeServing CSRReason = "CSRNodeServing"
	// CSRCredentialUnknown occurs when a first certificate is requested with a bootstrap token that no join
	// has, or whose id isn't recorded yet.
	CSRCredentialUnknown CSRReason = "CSRCredentialUnknown"
)

// Reasons to refuse.
const (
	// CSRCredentialForeign occurs when a first certificate is requested with another host's bootstrap token.
	CSRCredentialForeign CSRReason = "CSRCredentialForeign"
	// CSRMachineNotNew occurs when a certificate is requested with the token of the user data, and the Machine doesn't
	// exist, has a Node, or was created more than two hours before.
	CSRMachineNotNew CSRReason = "CSRMachineNotNew"
	// CSRNotRecognised occurs when the operator's own request isn't for a node's daemon.
	CSRNotRecognised CSRReason = "CSRNotRecognised"
	// CSRKeyOfAnother occurs when a bootstrap token is used for a second key.
	CSRKeyOfAnother CSRReason = "CSRKeyOfAnother"
	// CSRNodeForeign occurs when the Node belongs to another instance, or to none and runs another operating
	// system.
	CSRNodeForeign CSRReason = "CSRNodeForeign"
	// CSRSignerWrong occurs when the request is for a signer that doesn't sign such certificates.
	CSRSignerWrong CSRReason = "CSRSignerWrong"
	// CSRSubjectWrong occurs when the subject isn't exactly the required common name and organization.
	CSRSubjectWrong CSRReason = "CSRSubjectWrong"
	// CSRRequesterWrong occurs when the requester is neither the owner of the name nor entitled to request
	// for it.
	CSRRequesterWrong CSRReason = "CSRRequesterWrong"
	// CSRUsagesWrong occurs when the usages differ from the required ones.
	CSRUsagesWrong CSRReason = "CSRUsagesWrong"
	// CSRNamesForbidden occurs when alternative names are requested for a certificate that must have none, or
	// of a kind that no node has.
	CSRNamesForbidden CSRReason = "CSRNamesForbidden"
	// CSRNamesMissing occurs when a serving certificate is requested without any name.
	CSRNamesMissing CSRReason = "CSRNamesMissing"
	// CSRNameNotOfNode occurs when an alternative name or address isn't the node's, or another owner has it
	// as well. The message names the owner. A public address or a name in a domain that only kubelet
	// reports must be in spec.addresses.
	CSRNameNotOfNode CSRReason = "CSRNameNotOfNode"
	// CSRExtensionForbidden occurs when the request has an extension that no node's certificate needs.
	CSRExtensionForbidden CSRReason = "CSRExtensionForbidden"
	// CSRLifetimeMissing occurs when a daemon's request has no lifetime.
	CSRLifetimeMissing CSRReason = "CSRLifetimeMissing"
	// CSRLifetimeLong occurs when the requested lifetime is too long.
	CSRLifetimeLong CSRReason = "CSRLifetimeLong"
	// CSRKeyWeak occurs when the key or the signature's digest is too weak or of an unknown kind.
	CSRKeyWeak CSRReason = "CSRKeyWeak"
	// CSRSignatureWrong occurs when the requester doesn't have the private key.
	CSRSignatureWrong CSRReason = "CSRSignatureWrong"
)
