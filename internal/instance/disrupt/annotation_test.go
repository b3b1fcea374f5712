package disrupt

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// FuzzAnnotations simulates a hostile daemon or kubelet that writes any text into the fields that the operator reads.
// The text in logs, events and the status must be short, and the reason must be a known reason.
func FuzzAnnotations(f *testing.F) {
	const version = "0.1.0-0123456789"
	f.Add("DiskFull: revision "+version+": no room", version)
	f.Add("\x1b]0;x: revision "+version+": "+strings.Repeat("y", 200_000), strings.Repeat("z", 200_000))
	f.Add(": ", "")
	f.Fuzz(func(t *testing.T, status, revision string) {
		node := &corev1.Node{}
		node.Name = "win-a"
		node.Annotations = map[string]string{contract.ApplyStatusAnnotation: status,
			contract.StageStatusAnnotation: status, contract.RevisionAnnotation: revision}
		texts := []string{journey.ApplyStatus(node), journey.Follows(node, version).Problem.Detail}
		if why := refused(node, version); why != nil {
			if !why.Reason.Known() {
				t.Errorf("the reason %.80q is unknown", why.Reason)
			}
			texts = append(texts, why.Error())
		}
		for _, text := range texts {
			if len(text) > 4<<10 {
				t.Errorf("%d bytes: %.80q", len(text), text)
			}
		}
	})
}
