package reconcile

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
)

// tell passes the result of a pass to Options.Report. The result has the names of the affected objects, but no digests
// of their wanted values, because a digest would let a reader check a guessed password.
func (r *Reconciler) tell(ctx context.Context, node *unstructured.Unstructured, report apply.Report) {
	if r.Report == nil {
		return
	}
	now := r.facts(ctx, &pass{isLooked: true, report: report})
	reconciled := contract.Reconciled{Phase: now.Phase(), Desired: desired(node)}
	for _, p := range slices.Concat(report.Failed, report.Waiting, report.Beside) {
		reconciled.Problems = append(reconciled.Problems, apiclient.ProblemText(p))
	}
	for _, step := range r.applier.Differences(ctx) {
		reconciled.Differences = append(reconciled.Differences, contract.Difference{Step: string(step.Kind),
			Name: step.Name, Why: step.Why})
	}
	r.Report(reconciled)
}
