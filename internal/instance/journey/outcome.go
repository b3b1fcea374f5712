package journey

import (
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Outcome is what a phase came to.
type Outcome struct {
	verdict verdict
	// After is how long to wait at most; an event may end the wait earlier.
	After time.Duration
	// Endless says that what it waits for may never come: the host's place in the rollout budget is
	// others' meanwhile.
	Endless bool
	// Problem says why it waits or failed; nil when done.
	Problem *contract.Problem
	// Then is what the controller does next; nothing but to save for what waits, is done or failed.
	Then Then
	// Place is what is asked for with AskForPlace; Released a place that was given back.
	Place    Place
	Released *Released
	// Events are reported in any case.
	Events []Event
	// Quiet is how long nothing is said of a wait; IsUnreported that nothing is said of it at all.
	Quiet        time.Duration
	IsUnreported bool
	// IsRequested says that another revision was just requested of the daemon.
	IsRequested bool
}

// QuietPeriod is how long a daemon may take to apply a revision until the instance says that it
// is awaited. Nearly all are done by then, and a change that concerns hundreds of nodes costs each of
// them one write of its status instead of two.
const QuietPeriod = 15 * time.Second

// Then is what follows upon a step at once.
type Then int

// What may follow.
const (
	// Stop ends the journey for now.
	Stop Then = iota
	// Save saves the status, and asks for the next step.
	Save
	// AskForPlace asks for a place in the rollout budget, and goes on with it.
	AskForPlace
	// JoinAgain joins the host again over SSH.
	JoinAgain
	// Confirm goes on with the last phase of a join.
	Confirm
	// RebootToo goes on with a reboot in the same place.
	RebootToo
)

// Unreported is the outcome, of which nothing is said.
func (o Outcome) Unreported() Outcome {
	o.IsUnreported = true
	return o
}

// With adds an event.
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

// Done says that the phase's end state holds.
func Done() Outcome { return Outcome{} }

// Wait says that something must happen first; it is no failure.
func Wait(after time.Duration, reason contract.Reason, format string, args ...any) Outcome {
	return Outcome{verdict: waiting, After: after, Problem: contract.NewProblem(reason, format, args...)}
}

// WaitEndless is Wait for something that may never come.
func WaitEndless(after time.Duration, reason contract.Reason, format string, args ...any) Outcome {
	outcome := Wait(after, reason, format, args...)
	outcome.Endless = true
	return outcome
}

// Fail says that this attempt is over. An error without a reason of its own becomes an internal
// one.
func Fail(err error) Outcome {
	problem, ok := contract.AsProblem(err)
	if !ok {
		problem = contract.NewProblem(contract.ReasonInternal, "%v", err)
	}
	return Outcome{verdict: failed, Problem: problem}
}

const (
	// ConflictRetry is for a write that met another's: the cache has the newer object within
	// milliseconds.
	ConflictRetry = 200 * time.Millisecond
	// CallRetry is for an API server that does not answer.
	CallRetry = 3 * time.Second
	// refusedRetry is for one that refuses: a policy or a webhook mostly goes on to do so.
	refusedRetry = 30 * time.Second
)

// Retry waits after a call of the API server that did not succeed: no host is to blame, and what
// was begun on one goes on.
func Retry(err error) Outcome {
	if apierrors.IsConflict(err) {
		return Wait(ConflictRetry, contract.ReasonInProgress, "an object changed meanwhile; trying again at once")
	}
	return Wait(CallRetry, contract.ReasonAPICallFailed, "%v", err)
}

// RetryWrite is Retry for a write of a Node that has a place in the rollout budget. Of one that met
// another's nothing is said.
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

// FailRefused is Retry for a write without which the journey can't end. One that is refused for good fails: that goes
// on for as long as nobody changes a right or a policy.
func FailRefused(err error) Outcome {
	if lasts(err) {
		return Fail(contract.NewProblem(contract.ReasonAPICallFailed, "%v", err))
	}
	return Retry(err)
}

// lasts says that a refusal comes of the request, a right or a webhook. A server that is slow or busy, or waits
// for etcd, which is a 500 without a reason, may accept the next one.
func lasts(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) ||
		apierrors.ReasonForError(err) == metav1.StatusReasonInternalError
}

// IsDone says that the phase's end state holds.
func (o Outcome) IsDone() bool { return o.verdict == done }

// IsWaiting says that something must happen first.
func (o Outcome) IsWaiting() bool { return o.verdict == waiting }

// IsFailed says that the attempt is over.
func (o Outcome) IsFailed() bool { return o.verdict == failed }

// WaitForCluster waits for what only the cluster's administrator can mend; hosts are not to blame,
// so it is no failure of theirs.
func WaitForCluster(err error) Outcome {
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	return Retry(err)
}

// Joined makes one problem of several: the first one's reason, everybody's detail.
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
