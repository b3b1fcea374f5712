package tend

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/agent/keep"
	"github.com/windows-nodes/wmco/internal/contract"
)

// maxStatus bounds the apply-status annotation; operators and people read its beginning.
const maxStatus = 512

// patchTimeout bounds one write to the Node; nothing is tended meanwhile.
const patchTimeout = 15 * time.Second

// publish says on the Node what holds, if the Node does not say so already. It answers after which time it wants to be called again, or 0.
func (t *Tender) publish(ctx context.Context, node *unstructured.Unstructured, report keep.Report) time.Duration {
	if node == nil {
		return 0
	}
	have := node.GetAnnotations()
	desired := have[contract.DesiredVersionAnnotation]
	changes := map[string]any{}
	if problem := report.Problem(); problem == nil {
		if desired != "" && desired == t.Book.Version && t.Book.Proven && have[contract.VersionAnnotation] != desired {
			changes[contract.VersionAnnotation] = desired
		}
		if _, said := have[contract.AppliedReasonAnnotation]; said {
			changes[contract.AppliedReasonAnnotation] = nil
		}
	} else if text := statusText(problem); have[contract.AppliedReasonAnnotation] != text {
		wait := t.Pace.Status - t.Clock.Since(t.saidAt)
		if len(report.Failed) == 0 {
			wait = max(wait, t.Pace.Settle-t.Clock.Since(t.waitsSince))
		}
		if wait > 0 {
			return wait
		}
		changes[contract.AppliedReasonAnnotation] = text
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

func (t *Tender) annotate(ctx context.Context, node *unstructured.Unstructured, changes map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": changes}})
	if err != nil {
		return fmt.Errorf("encoding the Node's annotations: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patchTimeout)
	defer cancel()
	updated, err := t.Client.Resource(nodes).Patch(ctx, t.NodeName, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: contract.ServiceDaemon})
	if err != nil {
		return fmt.Errorf("annotating node %s: %w", t.NodeName, err)
	}
	// Our own change is no news.
	a := updated.GetAnnotations()
	t.seen.version, t.seen.status = a[contract.VersionAnnotation], a[contract.AppliedReasonAnnotation]
	t.node.replace(node, updated)
	return nil
}

// statusText is one short line.
func statusText(p *contract.Problem) string {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(p.Reason)+": "+p.Detail, "?"))
	if len(text) > maxStatus {
		text = strings.ToValidUTF8(text[:maxStatus-3], "") + "..."
	}
	return text
}
