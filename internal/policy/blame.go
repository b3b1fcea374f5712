package policy

import "github.com/windows-nodes/wmco/internal/contract"

// BlamesRevision reports whether a host failed because of the revision that it was changing to: its services,
// files or settings were not healthy. Failures of the host, the network or the cluster don't count against a
// revision.
func BlamesRevision(reason contract.Reason) bool {
	switch reason {
	case contract.ReasonServiceFailed, contract.ReasonFileFailed, contract.ReasonEnvironmentFailed,
		contract.ReasonTrustFailed, contract.ReasonRouteFailed, contract.ReasonManifestInvalid,
		contract.ReasonUpdateFailed, contract.ReasonDaemonUnresponsive:
		return true
	}
	return false
}
