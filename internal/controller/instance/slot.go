package instance

import (
	"context"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// slot handles an instance's slot in the rollout budget.
type slot struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	record   *record
	// isWanted: this reconcile has requested the slot. isUndecided: there is no decision yet.
	isWanted, isUndecided bool
}

// take requests the slot in several reconciles. First, take adds the request to the status, and the rollout controller
// adds the slot to its list. Then take adds the slot to the status, calls `granted`, and saves the status.
func (s *slot) take(ctx context.Context, granted func()) (policy.Verdict, error) {
	status := &s.instance.Status
	s.isWanted = true
	if status.HasSlot() {
		return policy.Verdict{Allowed: true, Why: "it holds its slot already"}, nil
	}
	if status.Slot == nil || s.isChanged() {
		status.Slot = &v1alpha1.Slot{}
		return s.undecided(), nil
	}
	verdict, known := s.rollout.Verdict(s.instance)
	if known && !verdict.Allowed {
		s.isUndecided = verdict.Reason == contract.ReasonAPICallFailed
		return verdict, nil
	}
	has, err := s.rollout.HasSlot(ctx, s.instance)
	if err != nil {
		return s.undecided(), err
	}
	if verdict, known = s.rollout.Verdict(s.instance); !has && known && !verdict.Allowed {
		return verdict, nil
	}
	if !has {
		return s.undecided(), nil
	}
	since := journey.Seconds(s.now())
	status.Slot.Since = &since
	granted()
	return policy.Verdict{Allowed: true, Why: "it is on the list of slots"}, s.record.save(ctx)
}

// isChanged reports whether the activity that needs the slot differs from the activity in the saved status. In this
// case, the rollout controller must see the new request before it decides.
func (s *slot) isChanged() bool {
	of := func(status *v1alpha1.WindowsInstanceStatus) (kind v1alpha1.ActivityKind, revision string) {
		if status.Activity == nil {
			return "", ""
		}
		return status.Activity.Kind, status.Activity.Revision
	}
	wasKind, wasRevision := of(&s.record.saved.Status)
	kind, revision := of(&s.instance.Status)
	return kind != wasKind || revision != wasRevision
}

func (s *slot) undecided() policy.Verdict {
	s.isUndecided = true
	return policy.Verdict{Why: "the decision is pending"}
}

// release releases the slot, or withdraws the request for it, when the status is saved.
func (s *slot) release() {
	s.instance.Status.Slot = nil
}

// withdraw removes a request that this reconcile did not repeat. Such a request could keep other nodes from slots.
func (s *slot) withdraw() {
	if !s.isWanted && !s.instance.Status.HasSlot() {
		s.instance.Status.Slot = nil
	}
}
