package journey

import (
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Outcome is the result of a phase or a step: done, waiting or failed.
type Outcome struct {
	verdict verdict
	// The field After is the maximum time to wait. An event may end the wait earlier.
	After time.Duration
	// If Endless is true, the wait may never end. The host then releases its slot in the rollout budget.
	Endless bool
	// Problem is why a phase or step waits or failed, or nil.
	Problem *contract.Problem
	Then    Then
	// Released is the slot in the rollout budget that was just released, or nil.
	Released *Released
	// Events are reported for every kind of outcome.
	Events []Event
	// Quiet is the time during which a wait is not reported. If IsUnreported is true, the wait is never reported.
	Quiet        time.Duration
	IsUnreported bool
	// IsRequested reports that a revision was just requested from the daemon.
	IsRequested bool
}

// QuietPeriod is the usual Quiet of a wait for a daemon that applies a revision. Nearly all daemons need less time, so
// an update of hundreds of nodes costs one write of each status instead of two.
const QuietPeriod = 15 * time.Second

// A Then is the controller's action after a step.
type Then int

const (
	// Stop is the default: after a done phase, a join continues with the next phase. Otherwise, the reconcile ends.
	Stop Then = iota
	// Save saves the status, and runs the phase again.
	Save
	// TakeSlot requests a slot in the rollout budget, and continues once the host has it.
	TakeSlot
	// JoinAgain joins the host again over SSH.
	JoinAgain
	// Confirm continues with the last phase of a join.
	Confirm
)

// Unreported returns a copy of the outcome that is never reported.
func (o Outcome) Unreported() Outcome {
	o.IsUnreported = true
	return o
}

// With returns a copy of the outcome with one more event.
func (o Outcome) With(event Event) Outcome {
	o.Events = append(o.Events, event)
	return o
}

type verdict int

const (
	done verdict = iota
	waiting
	failed
)

// Done returns the outcome of a phase that has reached its end state.
func Done() Outcome { return Outcome{} }

// Wait returns the outcome of a phase that must wait.
func Wait(after time.Duration, reason contract.Reason, format string, args ...any) Outcome {
	return Outcome{verdict: waiting, After: after, Problem: contract.NewProblem(reason, format, args...)}
}

// WaitEndless returns the outcome of a phase that waits for something that may never happen.
func WaitEndless(after time.Duration, reason contract.Reason, format string, args ...any) Outcome {
	outcome := Wait(after, reason, format, args...)
	outcome.Endless = true
	return outcome
}

// Fail returns the outcome of a failed attempt. An error without a reason becomes an internal error.
func Fail(err error) Outcome {
	problem, ok := contract.AsProblem(err)
	if !ok {
		problem = contract.NewProblem(contract.ReasonInternal, "%v", err)
	}
	return Outcome{verdict: failed, Problem: problem}
}

const (
	// ConflictRetry is the pause after a conflict. The cache shows the newer object within milliseconds.
	ConflictRetry = 200 * time.Millisecond
	// CallRetry is the pause after a call that the API server did not answer.
	CallRetry = 3 * time.Second
	// refusedRetry is the pause after a refusal. A policy or a webhook usually refuses again.
	refusedRetry = 30 * time.Second
)

// Retry returns the wait after a failed call of the API server. The host isn't the cause, and its work continues.
func Retry(err error) Outcome {
	if apierrors.IsConflict(err) {
		return Wait(ConflictRetry, contract.ReasonInProgress, "an object was modified concurrently; the operator "+
			"tries again at once")
	}
	return Wait(CallRetry, contract.ReasonAPICallFailed, "%v", err)
}

// RetryWrite is Retry for a Node with a rollout slot. It reports no conflict, and waits longer after a refusal.
func RetryWrite(err error) Outcome {
	outcome := Retry(err)
	switch {
	case apierrors.IsConflict(err):
		return outcome.Unreported()
	case lasts(err):
		outcome.After = refusedRetry
	}
	return outcome
}

// FailRefused is Retry for a write that must succeed before the work can end. If the API server refuses permanently,
// the attempt fails, because only a change of a right or a policy helps.
func FailRefused(err error) Outcome {
	if lasts(err) {
		return Fail(contract.NewProblem(contract.ReasonAPICallFailed, "%v", err))
	}
	return Retry(err)
}

// The function `lasts` reports whether the API server refuses a request permanently: because of its content, a right or
// a webhook. If a server is slow, busy, or waits for etcd (a 500 without a reason), it may accept the next request.
func lasts(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.ReasonForError(err) == metav1.StatusReasonInternalError
}

// IsDone reports whether the phase or step is done.
func (o Outcome) IsDone() bool { return o.verdict == done }

// IsWaiting reports whether the phase or step waits for something.
func (o Outcome) IsWaiting() bool { return o.verdict == waiting }

// IsFailed reports whether the attempt failed.
func (o Outcome) IsFailed() bool { return o.verdict == failed }

// WaitForCluster returns the wait for a problem of the cluster, which only an administrator can repair.
func WaitForCluster(err error) Outcome {
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	return Retry(err)
}

// Joined merges problems into one, which has the reason of the first problem and all details.
func Joined(problems []contract.Problem) *contract.Problem {
	details := make([]string, len(problems))
	for i := range problems {
		details[i] = problems[i].Detail
		if i > 0 {
			details[i] = problems[i].Error()
		}
	}
	return &contract.Problem{Reason: problems[0].Reason, Detail: strings.Join(details, "; ")}
}
