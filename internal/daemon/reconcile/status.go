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
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// status writes on the Node what holds.
type status struct {
	client    dynamic.Interface
	state     *state.File
	clock     clock.Clock
	intervals Intervals
	// written is when the apply-status annotation was last written; unwritten is the pause of the
	// present row of writes that failed.
	written   time.Time
	unwritten time.Duration
	// reboot is what keeps the host from a reboot that the operator approved of, or nil.
	reboot atomic.Pointer[contract.Problem]
}

// beside gives the problems of what goes on beside the loop.
func (s *status) beside() (problems []*contract.Problem) {
	if p := s.reboot.Load(); p != nil {
		problems = append(problems, p)
	}
	return problems
}

// publish writes on the Node what holds, if it is not there already. It gives after which time it
// is to be called again, or 0, and the Node's annotations if it wrote.
func (s *status) publish(ctx context.Context, watched *apiclient.Watch, node *unstructured.Unstructured,
	report apply.Report, waitsSince time.Time) (again time.Duration, after map[string]string) {
	if node == nil {
		return 0, nil
	}
	have := node.GetAnnotations()
	desired := have[contract.DesiredRevisionAnnotation]
	changes := map[string]any{}
	if problem := report.Problem(); problem == nil {
		if desired != "" && desired == s.state.Revision.Name && s.state.Verified &&
			have[contract.RevisionAnnotation] != desired {
			changes[contract.RevisionAnnotation] = desired
		}
		if _, there := have[contract.ApplyStatusAnnotation]; there {
			changes[contract.ApplyStatusAnnotation] = nil
		}
	} else if text := apiclient.ProblemText(problem); have[contract.ApplyStatusAnnotation] != text {
		wait := s.intervals.Status - s.clock.Since(s.written)
		if len(report.Failed) == 0 {
			wait = max(wait, s.intervals.Settle-s.clock.Since(waitsSince))
		}
		if wait > 0 {
			return wait, nil
		}
		changes[contract.ApplyStatusAnnotation] = text
		s.written = s.clock.Now()
	}
	if len(changes) == 0 {
		s.unwritten = 0
		return 0, nil
	}
	after, err := apiclient.AnnotateNode(ctx, s.client, watched, node, changes)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("the Node could not be annotated", "detail", err.Error())
		s.unwritten = grow(s.unwritten, 2, s.intervals.Failing, s.intervals.FailingLimit)
		return apiclient.Jitter(s.unwritten), nil
	}
	s.unwritten = 0
	return 0, after
}
