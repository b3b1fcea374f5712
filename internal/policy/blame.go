package policy

import "github.com/windows-nodes/wmco/internal/contract"

// BlamesRevision says whether a host that was being brought to a revision failed at the revision
// itself: its services, files or settings were not well. What lies with the host, the network or
// the cluster says nothing about a revision.
func BlamesRevision(reason contract.Reason) bool {
	switch reason {
	case contract.ReasonServiceFailed, contract.ReasonFileFailed, contract.ReasonEnvironmentFailed,
		contract.ReasonTrustFailed, contract.ReasonRouteFailed, contract.ReasonManifestInvalid,
		contract.ReasonUpdateFailed, contract.ReasonDaemonUnresponsive:
		return true
	}
	return false
}
