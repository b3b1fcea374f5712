package disrupt

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/windows-nodes/wmco/internal/contract"
)

// sameVersion reports whether a kubelet has the version that it should have. Builds of one version count as the same.
// If the wanted version is not a version, any reported one counts.
func sameVersion(reported, wanted string) bool {
	r, err := version.ParseGeneric(reported)
	if err != nil {
		return wanted == "" || reported != ""
	}
	w, err := version.ParseGeneric(wanted)
	return err != nil || r.WithPreRelease("").EqualTo(w.WithPreRelease(""))
}

// refused returns the daemon's report that it left a revision, or could not go to it, and holds another one, or nil.
func refused(node *corev1.Node, revision string) *contract.Problem {
	reason, detail, ok := strings.Cut(node.Annotations[contract.ApplyStatusAnnotation], ": ")
	if !ok || !strings.HasPrefix(detail, contract.AboutRevision(revision)) {
		return nil
	}
	if !contract.Reason(reason).Known() { // a daemon can say anything
		reason = string(contract.ReasonUpdateFailed)
	}
	return contract.NewProblem(contract.Reason(reason), "%.400s", detail)
}

// passes reports whether the daemon may receive what it lacks later, so that the revision is not to blame.
func passes(problem *contract.Problem) bool {
	switch problem.Reason {
	case contract.ReasonManifestMissing, contract.ReasonPayloadMissing, contract.ReasonPayloadIncomplete,
		contract.ReasonPayloadCorrupt, contract.ReasonAPICallFailed:
		return true
	}
	return false
}
