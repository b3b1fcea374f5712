package disrupt

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/windows-nodes/wmco/internal/contract"
)

// sameVersion reports whether a kubelet has the wanted version. It ignores differences between builds. If either
// version can't be parsed, every reported version is accepted.
func sameVersion(reported, wanted string) bool {
	r, err := version.ParseGeneric(reported)
	if err != nil {
		return wanted == "" || reported != ""
	}
	w, err := version.ParseGeneric(wanted)
	return err != nil || r.WithPreRelease("").EqualTo(w.WithPreRelease(""))
}

// The function `refused` returns the daemon's report that this revision failed or was rolled back, or nil.
func refused(node *corev1.Node, revision string) *contract.Problem {
	reason, detail, ok := strings.Cut(node.Annotations[contract.ApplyStatusAnnotation], ": ")
	if !ok || !strings.HasPrefix(detail, contract.AboutRevision(revision)) {
		return nil
	}
	if !contract.Reason(reason).Known() { // a daemon can report any text
		reason = string(contract.ReasonUpdateFailed)
	}
	return contract.NewProblem(contract.Reason(reason), "%.400s", detail)
}

// The function `passes` reports whether a problem may disappear by itself when the daemon receives the missing data.
// The revision doesn't cause such a problem.
func passes(problem *contract.Problem) bool {
	switch problem.Reason {
	case contract.ReasonManifestMissing, contract.ReasonPayloadMissing, contract.ReasonPayloadIncomplete,
		contract.ReasonPayloadCorrupt, contract.ReasonAPICallFailed:
		return true
	}
	return false
}
