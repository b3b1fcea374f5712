package lifecycle

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// DefaultSilence is how long a daemon may say nothing to what it was told, or get nothing of what
// it was told to fetch, before its host is walked into over SSH.
const DefaultSilence = 5 * time.Minute

// longestQuiet bounds how far ahead a look is planned for the end of a certificate, which is a
// daemon's word.
const longestQuiet = 24 * time.Hour

// tell marks a Node with a version that its daemon is to bring about, and takes the daemon's word
// of before away in the same write: what it says afterwards is an answer.
func (w *Walker) tell(ctx context.Context, node *corev1.Node, marks Marks) error {
	err := w.change(ctx, node, func(wanted *corev1.Node) {
		marks.Apply(wanted)
		delete(wanted.Annotations, contract.ApplyStatusAnnotation)
	})
	if err != nil {
		return fmt.Errorf("marking node %s: %w", node.Name, err)
	}
	return nil
}

// listen notes in the status since when a daemon owes an answer: kubelet is well, and it neither
// has the version that it was told nor says why not.
func (w *Walker) listen(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) {
	now := metav1.NewTime(w.Now().Truncate(time.Second)) // as the API server keeps it
	switch ready, _ := NodeReady(node); {
	case !ready || trusted(status) || !owes(status, node):
		status.SilentSince = nil
	case status.SilentSince == nil || status.SilentSince.After(now.Time):
		status.SilentSince = &now
	}
}

// owes says that a daemon was told a version, and neither has it nor says why not.
func owes(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) bool {
	told := node.Annotations[contract.DesiredRevisionAnnotation]
	return told == status.DesiredRevision && told != node.Annotations[contract.RevisionAnnotation] &&
		node.Annotations[contract.ApplyStatusAnnotation] == ""
}

// silent says why a node's daemon is taken for dead, or for one that can't speak, while kubelet is
// well; nil while it is not, and left is then when to look again at the latest, if it owes an
// answer or its certificate ends.
func (w *Walker) silent(status *v1alpha1.WindowsInstanceStatus, node *corev1.Node) (problem *contract.Problem,
	left time.Duration) {
	if ready, _ := NodeReady(node); !ready || trusted(status) {
		return nil, 0
	}
	daemon := policy.Daemon{Led: w.led()}
	if end, err := time.Parse(time.RFC3339, node.Annotations[contract.CertificateEndAnnotation]); err == nil {
		daemon.CertificateEnd = end
	}
	if status.SilentSince != nil && owes(status, node) {
		daemon.Owing = status.SilentSince.Time
	}
	for _, p := range status.Phases {
		if p.Phase == v1alpha1.PhaseConfirming { // which follows upon the handover
			daemon.Visited = p.StartTime.Time
		}
	}
	why, left := policy.Silent(daemon, w.Silence, w.Now())
	if why != "" {
		return contract.NewProblem(contract.ReasonDaemonSilent,
			"kubelet of node %s is well, and its daemon is dead or can't speak: %s", node.Name, why), 0
	}
	return nil, min(left, longestQuiet)
}

// led is since when this operator looks after hosts; zero when nobody told.
func (w *Walker) led() time.Time {
	if w.Led == nil {
		return time.Time{}
	}
	return w.Led()
}

// Silent gives the Node of a host that has joined, and why its daemon is taken for dead, or for one
// that can't speak; nil while it is not.
func (w *Walker) Silent(ctx context.Context, instance *v1alpha1.WindowsInstance) (*corev1.Node, *contract.Problem,
	error) {
	if instance.Status.JoinedTime == nil || instance.Status.Phase == v1alpha1.PhaseRemoving {
		return nil, nil, nil
	}
	node, err := w.ours(ctx, instance)
	if err != nil || node == nil {
		return nil, nil, err
	}
	problem, _ := w.silent(&instance.Status, node)
	if problem == nil {
		return nil, nil, nil
	}
	return node, problem, nil
}

// unheard says that a daemon that was handed over does not answer: nothing is gained by waiting on,
// and another try may find out why.
func (w *Walker) unheard(instance *v1alpha1.WindowsInstance, node *corev1.Node) *contract.Problem {
	if ready, _ := NodeReady(node); !ready || node.Annotations[contract.ApplyStatusAnnotation] != "" {
		return nil
	}
	for _, p := range instance.Status.Phases {
		if p.Phase != v1alpha1.PhaseConfirming || p.Milliseconds != nil {
			continue
		}
		if why, _ := policy.Silent(policy.Daemon{Owing: p.StartTime.Time, Led: w.led()}, w.Silence,
			w.Now()); why != "" {
			return contract.NewProblem(contract.ReasonDaemonSilent,
				"the daemon of node %s was started over SSH, and %s", node.Name, why)
		}
	}
	return nil
}
