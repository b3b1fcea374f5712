package reconcile

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

type status struct {
	client    dynamic.Interface
	state     *state.File
	clock     clock.Clock
	intervals Intervals
	// `written` is when the apply-status annotation was last written. `unwritten` is the pause after the latest failed
	// write. It grows with each failure in a row, and is 0 after a success.
	written   time.Time
	unwritten time.Duration
	// isOwed reports that an annotation must be written later.
	isOwed bool
	// reboot is why an approved reboot failed, or nil. If it is set, the Node shows only this problem, because the
	// operator waits for the reboot.
	reboot atomic.Pointer[contract.Problem]
}

// isOwing reports that a write to the Node failed or is postponed.
func (s *status) isOwing() bool { return s.unwritten > 0 || s.isOwed }

// `shown` returns the problem for the Node, or nil. The result `waits` is true if the problem may disappear by itself.
func (s *status) shown(report apply.Report) (problem *contract.Problem, waits bool) {
	if refused := s.reboot.Load(); refused != nil {
		return refused, false
	}
	if problem = report.Problem(); problem != nil {
		return problem, len(report.Failed) == 0
	}
	if len(report.Beside) > 0 {
		problem = report.Beside[0]
	}
	return problem, false
}

// publish writes the state of the host to the Node, unless the Node already shows it. The result `again` is how long to
// wait before the next call, or 0 if no further call is needed. The result `after` contains the Node's annotations
// after a write, or nil if publish wrote nothing.
func (s *status) publish(ctx context.Context, watched *apiclient.Watch, node *unstructured.Unstructured,
	report apply.Report, waitsSince time.Time) (again time.Duration, after map[string]string) {
	if s.isOwed = false; node == nil {
		return 0, nil
	}
	have := node.GetAnnotations()
	desired := have[contract.DesiredRevisionAnnotation]
	changes := map[string]any{}
	if report.Holds() && desired != "" && desired == s.state.Revision.Name && s.state.Verified &&
		have[contract.RevisionAnnotation] != desired {
		changes[contract.RevisionAnnotation] = desired
	}
	problem, waits := s.shown(report)
	text := ""
	if problem != nil {
		text = apiclient.ProblemText(problem)
	}
	switch status, there := have[contract.ApplyStatusAnnotation]; {
	case problem == nil && there:
		changes[contract.ApplyStatusAnnotation] = nil
	case status != text:
		again = s.intervals.Status - s.clock.Since(s.written)
		if waits {
			again = max(again, s.intervals.Settle-s.clock.Since(waitsSince))
		}
		if again = max(again, 0); again == 0 {
			changes[contract.ApplyStatusAnnotation] = text
			s.written = s.clock.Now()
		}
	}
	s.isOwed = again > 0
	if len(changes) == 0 {
		if again == 0 {
			s.unwritten = 0
		}
		return again, nil
	}
	after, err := apiclient.AnnotateNode(ctx, s.client, watched, node, changes)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("the Node can't be annotated", "detail", err.Error())
		s.unwritten = loop.Grow(s.unwritten, 2, s.intervals.Failing, s.intervals.FailingLimit)
		return loop.Jitter(s.unwritten), nil
	}
	s.unwritten = 0
	return again, after
}
