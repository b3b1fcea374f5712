package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
)

// publish says on the Node what holds, if the Node does not say so already. It answers after which
// time it wants to be called again, or 0.
func (t *Reconciler) publish(ctx context.Context, node *unstructured.Unstructured, report apply.Report) time.Duration {
	if node == nil {
		return 0
	}
	have := node.GetAnnotations()
	desired := have[contract.DesiredRevisionAnnotation]
	changes := map[string]any{}
	if problem := report.Problem(); problem == nil {
		if desired != "" && desired == t.Book.Version && t.Book.Proven && have[contract.RevisionAnnotation] != desired {
			changes[contract.RevisionAnnotation] = desired
		}
		if _, said := have[contract.ApplyStatusAnnotation]; said {
			changes[contract.ApplyStatusAnnotation] = nil
		}
	} else if text := apiclient.ProblemText(problem); have[contract.ApplyStatusAnnotation] != text {
		wait := t.Pace.Status - t.Clock.Since(t.saidAt)
		if len(report.Failed) == 0 {
			wait = max(wait, t.Pace.Settle-t.Clock.Since(t.waitsSince))
		}
		if wait > 0 {
			return wait
		}
		changes[contract.ApplyStatusAnnotation] = text
		t.saidAt = t.Clock.Now()
	}
	if len(changes) == 0 {
		t.unsaid = 0
		return 0
	}
	if err := t.annotate(ctx, node, changes); err != nil {
		logr.FromContextOrDiscard(ctx).Info("the Node could not be annotated", "detail", err.Error())
		t.unsaid = grow(t.unsaid, 2, t.Pace.Failing, t.Pace.FailingLimit)
		return jitter(t.unsaid)
	}
	t.unsaid = 0
	return 0
}

func (t *Reconciler) annotate(ctx context.Context, node *unstructured.Unstructured, changes map[string]any) error {
	after, err := apiclient.AnnotateNode(ctx, t.Client, t.node, node, changes)
	if err != nil {
		return err
	}
	// Our own change is no news.
	t.seen.version, t.seen.status = after[contract.RevisionAnnotation], after[contract.ApplyStatusAnnotation]
	return nil
}
