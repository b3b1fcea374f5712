package policy

import "github.com/windows-nodes/wmco/internal/contract"

// BlamesRevision reports whether a failure counts against the revision that the host was changing to. It counts if
// services, files or settings were not healthy. Failures of the host, the network or the cluster don't count.
func BlamesRevision(reason contract.Reason) bool {
	switch reason {
	case contract.ReasonServiceFailed, contract.ReasonFileFailed, contract.ReasonEnvironmentFailed,
		contract.ReasonTrustFailed, contract.ReasonRouteFailed, contract.ReasonManifestInvalid,
		contract.ReasonUpdateFailed, contract.ReasonDaemonUnresponsive:
		return true
	}
	return false
}
