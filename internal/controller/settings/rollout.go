package settings

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const maxFailures = 20

// rollout writes the progress of the desired revision to the status. `failed` is how many nodes failed at this
// revision. If the instance of a failed node is removed, the status still lists the failure.
func rollout(status *v1alpha1.WindowsMachineConfigStatus, f Facts) (failed int) {
	if f.DesiredRevision == "" || f.Config == nil {
		return len(status.Rollout.Failures) // keep the status from before
	}
	all := failures(status.Rollout.Failures, f)
	r := v1alpha1.RolloutStatus{Revision: f.DesiredRevision, Failures: all[:min(len(all), maxFailures)]}
	var moving, paused int
	var waiting []*v1alpha1.WindowsInstance
	for i := range f.Instances {
		one := &f.Instances[i]
		if !one.Status.Joined() || !one.DeletionTimestamp.IsZero() {
			continue
		}
		p := progress(one, f.DesiredRevision)
		r.Total++
		r.Updated += count1(p.updated)
		r.Staged += count1(p.updated || p.staged)
		r.Unavailable += count1(p.unavailable)
		switch {
		case p.updated:
		case p.paused:
			paused++
		case p.moving:
			moving++
		default:
			waiting = append(waiting, one)
		}
	}
	seen := f.Config.DeepCopy()
	seen.Status.Rollout = r
	halted := policy.Halted(f.DesiredRevision, seen, f.Instances)
	switch {
	case r.Updated == r.Total:
		r.Phase, r.Message = v1alpha1.RolloutIdle, contract.CountAre(int(r.Total), "node")+" at the revision"
	case halted != "":
		r.Phase = v1alpha1.RolloutHalted
		r.Message = halted + ". " + contract.ReasonRolloutHalted.Fix()
	case moving > 0:
		r.Phase, r.Message = v1alpha1.RolloutProgressing, fmt.Sprintf("%d of %d nodes are at the revision, %d being "+
			"upgraded, %d waiting", r.Updated, r.Total, moving, len(waiting))
	default:
		r.Phase, r.Message = v1alpha1.RolloutWaiting,
			fmt.Sprintf("%d of %d nodes are at the revision; %s", r.Updated, r.Total, waitsFor(f, r, waiting))
	}
	if paused > 0 && halted == "" {
		r.Message += fmt.Sprintf(", %d paused", paused)
	}
	status.Rollout = r
	return len(all)
}

func count1(yes bool) int32 {
	if yes {
		return 1
	}
	return 0
}

func waitsFor(f Facts, r v1alpha1.RolloutStatus, waiting []*v1alpha1.WindowsInstance) string {
	spec := f.Config.Spec.Rollout
	if len(waiting) == 0 {
		return "no other node waits"
	}
	if problems := policy.CheckRollout(spec); len(problems) > 0 {
		return problems[0].Detail
	}
	if closed := policy.Closed(spec, f.Now); closed != "" {
		return closed
	}
	if next := nextTry(waiting, f.Now); next != nil {
		update := next.Status.Activity
		return fmt.Sprintf("node %s is tried again at %s, because of %s %s: %.300s", next.Status.NodeName,
			update.NextTime.UTC().Format(time.RFC3339), contract.Reason(update.Reason).Code(), update.Reason,
			update.Message)
	}
	for _, one := range waiting { // prefer this message, because it lists everything that uses up the budget
		if reason := contract.ReasonBudgetExhausted; one.Status.Reason() == string(reason) {
			why, _ := reason.Explained(one.Status.Message())
			return why
		}
	}
	budget := "1"
	if spec.MaxUnavailable != nil {
		budget = spec.MaxUnavailable.String()
	}
	return fmt.Sprintf("the others wait for the rollout budget: %s unavailable, and "+
		"spec.rollout.maxUnavailable is %s", contract.CountAre(int(r.Unavailable), "node"), budget)
}

// If all waiting nodes failed and wait for a retry, nextTry returns the node that is retried first, and otherwise nil.
func nextTry(waiting []*v1alpha1.WindowsInstance, now time.Time) (first *v1alpha1.WindowsInstance) {
	for _, one := range waiting {
		update := one.Status.Upgrade()
		if update == nil || update.NextTime == nil || !now.Before(update.NextTime.Time) {
			return nil
		}
		if first == nil || update.NextTime.Before(first.Status.Activity.NextTime) {
			first = one
		}
	}
	return first
}

type hostProgress struct {
	revision, failed, next                       string
	updated, staged, moving, unavailable, paused bool
}

func progress(i *v1alpha1.WindowsInstance, revision string) hostProgress {
	s := &i.Status
	p := hostProgress{revision: s.DesiredRevision, failed: s.FailedRevision, unavailable: s.HasSlot() ||
		!meta.IsStatusConditionTrue(s.Conditions, v1alpha1.ConditionReady)}
	p.updated = s.Upgrade() == nil && s.DesiredRevision == revision && s.Revision == revision
	p.moving, p.paused = s.HasSlot() || s.Upgrade() == nil && !p.updated, i.Spec.Paused
	if update := s.Upgrade(); update != nil {
		if update.NextTime != nil {
			p.next = update.NextTime.String()
		}
		p.revision = update.Revision
		p.staged = update.Step != v1alpha1.StepStaging
		// In an upgrade over SSH, the operator connects to the host before it requests a slot.
		p.moving = p.moving || !p.staged || update.Step == v1alpha1.StepSwitching
	}
	return p
}

// failures merges the failures in the status with the instances' failures. It keeps the newest failure of each node,
// and sorts the newest first. If a joined instance reports no failure at this revision, the status loses its failure.
func failures(before []v1alpha1.RolloutFailure, f Facts) []v1alpha1.RolloutFailure {
	byNode := map[string]v1alpha1.RolloutFailure{}
	for _, one := range before {
		if one.Revision == f.DesiredRevision {
			byNode[one.Node] = one
		}
	}
	for i := range f.Instances {
		status := &f.Instances[i].Status
		node, failed := status.NodeName, meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUpdateFailed)
		switch {
		case failed != nil && status.FailedRevision == f.DesiredRevision:
			byNode[node] = v1alpha1.RolloutFailure{Node: node, Revision: status.FailedRevision,
				Code: contract.Reason(failed.Reason).Code(), Message: failed.Message, Time: failed.LastTransitionTime}
		case status.Joined():
			delete(byNode, node)
		}
	}
	var all []v1alpha1.RolloutFailure
	for _, one := range byNode {
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b v1alpha1.RolloutFailure) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Node, b.Node))
	})
	return all
}

// waitingRetry is how often a waiting rollout is checked: no event reports that a maintenance window opens.
const waitingRetry = time.Minute
