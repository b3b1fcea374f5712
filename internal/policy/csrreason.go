package policy

// CSRReason is a CamelCase reason for a decision about a certificate request, in conditions, events and logs.
type CSRReason string

// Reasons to approve a request.
const (
	// CSRKubeletApproved occurs when a kubelet's request obeys every rule.
	CSRKubeletApproved CSRReason = "WMCOApprove"
	// CSRDaemonApproved occurs when a daemon's request obeys every rule.
	CSRDaemonApproved CSRReason = "WICDAutoApproved"
	// CSRHostApproved occurs when the request of a host that joins by itself obeys every rule.
	CSRHostApproved CSRReason = "HostApproved"
)

// Reasons to ignore a request.
const (
	// CSRNotOurs occurs when the request is already decided, is for another signer, or is for no node.
	CSRNotOurs CSRReason = "CSRNotOurs"
	// CSRNameForeign occurs when no instance of this operator has the requested node name.
	CSRNameForeign CSRReason = "CSRNameForeign"
)

// Reasons to wait.
const (
	// CSRNameAmbiguous occurs when two instances have the requested node name.
	CSRNameAmbiguous CSRReason = "CSRNameAmbiguous"
	// CSRInstanceLeaving occurs when the instance is being removed.
	CSRInstanceLeaving CSRReason = "CSRInstanceLeaving"
	// CSRPhaseEarly occurs when the instance's join hasn't reached the phase that requests this certificate.
	CSRPhaseEarly CSRReason = "CSRPhaseEarly"
	// CSRNodePending occurs when a request can only be approved after its Node exists, and the Node doesn't exist yet.
	CSRNodePending CSRReason = "CSRNodePending"
	// CSRNodeUnadopted occurs when the Node exists but isn't bound to the instance yet.
	CSRNodeUnadopted CSRReason = "CSRNodeUnadopted"
	// CSRNodeServing occurs when a first certificate is requested although the Node is Ready with its current
	// certificate. If the host really was reinstalled, its Node stops being Ready within a minute.
	CSRNodeServing CSRReason = "CSRNodeServing"
	// CSRCredentialUnknown occurs when a first certificate is requested with a bootstrap token that doesn't belong to
	// this join, or whose id isn't recorded yet.
	CSRCredentialUnknown CSRReason = "CSRCredentialUnknown"
)

// Reasons to refuse.
const (
	// CSRCredentialForeign occurs when a first certificate is requested with another host's bootstrap token.
	CSRCredentialForeign CSRReason = "CSRCredentialForeign"
	// CSRMachineNotNew occurs when a certificate is requested with the token in the user data, and the Machine doesn't
	// exist, already has a Node, or was created more than two hours before the request.
	CSRMachineNotNew CSRReason = "CSRMachineNotNew"
	// CSRNotRecognised occurs when the operator itself submitted a request that isn't for a node's daemon.
	CSRNotRecognised CSRReason = "CSRNotRecognised"
	// CSRKeyOfAnother occurs when a token that was already used for one key is used for another key.
	CSRKeyOfAnother CSRReason = "CSRKeyOfAnother"
	// CSRNodeForeign occurs when the Node belongs to another instance, or has no instance and another operating system.
	CSRNodeForeign CSRReason = "CSRNodeForeign"
	// CSRSignerWrong occurs when the request is for a signer that doesn't sign such certificates.
	CSRSignerWrong CSRReason = "CSRSignerWrong"
	// CSRSubjectWrong occurs when the subject isn't exactly the required common name and organization.
	CSRSubjectWrong CSRReason = "CSRSubjectWrong"
	// CSRRequesterWrong occurs when the requester has neither the requested identity nor the right to request it.
	CSRRequesterWrong CSRReason = "CSRRequesterWrong"
	// CSRUsagesWrong occurs when the usages differ from the required usages.
	CSRUsagesWrong CSRReason = "CSRUsagesWrong"
	// CSRNamesForbidden occurs when a request contains alternative names for a certificate that must not have any, or a
	// kind of alternative name that no node has.
	CSRNamesForbidden CSRReason = "CSRNamesForbidden"
	// CSRNamesMissing occurs when a serving certificate is requested without any name.
	CSRNamesMissing CSRReason = "CSRNamesMissing"
	// CSRNameNotOfNode occurs when a requested name or address doesn't belong to the node, or also belongs to the owner
	// in the message. If only kubelet reports a public address or a name in a domain, add it to spec.addresses.
	CSRNameNotOfNode CSRReason = "CSRNameNotOfNode"
	// CSRExtensionForbidden occurs when the request contains an extension that no node's certificate needs.
	CSRExtensionForbidden CSRReason = "CSRExtensionForbidden"
	// CSRLifetimeMissing occurs when a daemon's request doesn't set a lifetime.
	CSRLifetimeMissing CSRReason = "CSRLifetimeMissing"
	// CSRLifetimeLong occurs when the requested lifetime is too long.
	CSRLifetimeLong CSRReason = "CSRLifetimeLong"
	// CSRKeyWeak occurs when the key or the signature's digest is too weak, or is of an unknown kind.
	CSRKeyWeak CSRReason = "CSRKeyWeak"
	// CSRSignatureWrong occurs when the signature shows that the requester doesn't have the private key.
	CSRSignatureWrong CSRReason = "CSRSignatureWrong"
)
