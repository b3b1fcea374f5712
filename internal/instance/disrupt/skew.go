package disrupt

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/windows-nodes/wmco/internal/contract"
)

// sameVersion says whether a kubelet reports the version that it should. Builds of one version are
// the same; what is no version says nothing.
func sameVersion(reported, wanted string) bool {
	r, err := version.ParseGeneric(reported)
	if err != nil {
		return wanted == "" || reported != ""
	}
	w, err := version.ParseGeneric(wanted)
	return err != nil || r.WithPreRelease("").EqualTo(w.WithPreRelease(""))
}

// refused is the daemon's report that it left a revision, or could not go to it, and holds the host at
// another; nil while it says nothing of the kind.
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

// passes says that what a daemon lacks may come by itself, so that the revision is not to blame.
func passes(problem *contract.Problem) bool {
	switch problem.Reason {
	case contract.ReasonManifestMissing, contract.ReasonPayloadMissing, contract.ReasonPayloadIncomplete,
		contract.ReasonPayloadCorrupt, contract.ReasonAPICallFailed:
		return true
	}
	return false
}
