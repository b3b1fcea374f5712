package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/trial"
)

const (
	// trialTime is a new program's time on trial, from its first start. The operator's default verifyTimeout is longer.
	trialTime = 8 * time.Minute
	// ownLife is how long a daemon must run before it is accepted although its revision isn't verified yet. A daemon
	// that has run this long is trusted to roll back by itself or on the operator's request.
	ownLife = time.Minute
	// If the program of a revision fails to start, the daemon pauses before it tries the revision again: for at least
	// firstPause and at most maxPause. firstPause is long enough for the service manager to forget failures: see
	// plan.DaemonRecovery. With a shorter pause, the service manager would wait for minutes before each start.
	firstPause = 6 * time.Minute
	maxPause   = 20 * time.Minute
)

// ErrLate means that a new program was not accepted by its deadline.
var ErrLate = errors.New("this program was not accepted by its deadline")

// Run calls `daemon` and returns its error. If the program of this process is on trial, Run first counts the start in
// the state file, and returns ErrLate at the deadline even if the daemon hangs. If the trial has failed, Run restores
// the previous program and returns ErrReplaced.
func (p *Program) Run(ctx context.Context, daemon func(ctx context.Context) error) error {
	limit, err := p.begin(ctx)
	if err != nil {
		return err
	}
	if limit == 0 {
		return daemon(ctx)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p.deadline = time.NewTimer(limit)
	defer p.deadline.Stop()
	ended := make(chan error, 1)
	go func() { ended <- daemon(ctx) }()
	select {
	case err = <-ended:
		return err
	case <-p.deadline.C:
		return ErrLate
	}
}

// begin counts a start of the program on trial. If the trial has failed, begin restores the previous program, even if
// this process doesn't run the program on trial. The result `limit` is how long this process may stay on trial. If this
// process is not on trial, the result is zero.
func (p *Program) begin(ctx context.Context) (limit time.Duration, err error) {
	update := p.state.Update
	if update == nil {
		return 0, nil
	}
	log, isOnTrial := logr.FromContextOrDiscard(ctx), update.Program == p.digest
	now := p.host.System.Now()
	if isOnTrial {
		update.Starts++
		if update.Deadline.IsZero() || update.Deadline.Sub(now) > trialTime { // the clock may have been set back
			update.Deadline = now.Add(trialTime)
		}
		log.Info("this program is on trial", "start", update.Starts, "deadline", update.Deadline)
		if err = p.state.Save(); err != nil {
			log.Error(err, "this start can't be counted")
		}
	}
	limit = update.Deadline.Sub(now)
	next := trial.Next(trial.Facts{IsStart: true, Starts: update.Starts, IsLate: limit <= 0})
	if next.Action != trial.Restore {
		if isOnTrial {
			return limit, nil
		}
		return 0, nil // this is the previous program, which will install the new one
	}
	why := fmt.Sprintf("the new daemon does not stay up: it ended %d times", trial.MaxStarts-1)
	if limit <= 0 {
		why = fmt.Sprintf("the new daemon hangs, or does not reach the API server: it had %s", trialTime)
	}
	if err = p.restore(ctx, why); err != nil {
		log.Error(err, "the previous program can't be restored; this program continues")
		return trialTime, nil
	}
	if isOnTrial {
		return 0, ErrReplaced
	}
	return 0, nil
}

// restore rolls back to the previous revision, installs its program, and records the reason. If the state file can't be
// written, restore only logs the error: the restored program detects the failed trial and records the failure.
func (p *Program) restore(ctx context.Context, why string) error {
	failed := p.state.Revision
	isTried, to := false, failed
	if exe, _ := failed.Manifest.DaemonProgram(); p.state.Before != nil && exe.Digest == p.state.Update.Program {
		isTried, to = true, *p.state.Before
	}
	if exe, known := to.Manifest.DaemonProgram(); known && exe.Digest != p.digest {
		if err := p.install(ctx, exe.Digest); err != nil {
			return err
		}
	}
	p.state.Update = nil
	if isTried {
		p.state.Back()
		p.state.Fail(failed.Name, contract.NewProblem(contract.ReasonDaemonCallFailed, "%s", why), firstPause, maxPause,
			time.Now().Add)
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("restored the previous program", "why", why, "failed", failed.Name, "revision", to.Name)
	if err := p.state.Save(); err != nil {
		log.Error(err, "the failure of the new program can't be recorded")
	}
	return nil
}

// Accept ends the trial of this program if its revision is verified, or if this process has run for at least ownLife.
// `lived` is the time that this process has run. Call Accept only if the API server has answered, and before the
// revision is reported on the Node: after that report, the old program must not be restored. Accept returns a problem
// if it can't record the end of the trial.
func (p *Program) Accept(lived time.Duration) *contract.Problem {
	if p.state.Update == nil || !p.state.Verified && lived < ownLife {
		return nil
	}
	update := p.state.Update
	p.state.Update = nil
	if err := p.state.Save(); err != nil {
		p.state.Update = update
		return apply.FileProblem(err)
	}
	if p.deadline != nil {
		p.deadline.Stop()
	}
	return nil
}
