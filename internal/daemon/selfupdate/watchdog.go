package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Intervals says how long the new daemon is given.
type Intervals struct {
	// Look lies between two looks at its service; 1 s if 0.
	Look time.Duration
	// Down is how long it may not be running, in all looks together; 1 min if 0. The service
	// manager itself gives a program 30 s to begin.
	Down time.Duration
	// Limit is how long it may run without stopping the watchdog; 8 min if 0: longer than a daemon
	// takes to see by itself that it must go back, and less than the operator gives a node by
	// default.
	Limit time.Duration
}

// The first pause before a revision is tried again that had to be left, and the longest: see
// reconcile.Intervals.
const (
	refused      = time.Minute
	refusedLimit = 20 * time.Minute
)

// grace is how many looks in a row a service that is stopped is left to the service manager. That
// waits for minutes when the daemon has failed often of late, such as in a replacement before, or for
// ever when somebody took its settings away.
const grace = 5

// aside is where the new program is moved. What is left of it, the daemon removes.
func aside() string { return winos.AsidePath(contract.PathDaemon, 0) }

// Watchdog watches over one replacement of the daemon's program.
type Watchdog struct {
	// Host that it acts on.
	Host winos.Host
	// Self is the path of the own program, which is also the one to put back.
	Self      string
	Intervals Intervals
}

// Run returns when there is nothing left to watch, or ctx has ended. It may be ended and run again
// at any time.
func (w Watchdog) Run(ctx context.Context) error {
	for value, fallback := range map[*time.Duration]time.Duration{
		&w.Intervals.Look: time.Second, &w.Intervals.Down: time.Minute, &w.Intervals.Limit: 8 * time.Minute,
	} {
		if *value == 0 {
			*value = fallback
		}
	}
	own, err := apply.DigestOf(ctx, w.Host.Files, w.Self)
	if err != nil {
		return err
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("watching the new daemon", "program", own)
	why := w.watch(ctx)
	for why != "" && ctx.Err() == nil {
		// What has begun is brought to its end: the daemon that is about to stop this watchdog may
		// be the one that is stopped.
		if err = w.act(context.WithoutCancel(ctx), own, why); err == nil {
			break
		}
		log.Info("rolling back did not succeed, and is tried again", "detail", err.Error())
		w.sleep(ctx)
	}
	log.Info("ended")
	return nil
}

func (w Watchdog) sleep(ctx context.Context) {
	select {
	case <-time.After(w.Intervals.Look):
	case <-ctx.Done():
	}
}

// watch answers why it is time to act, or nothing when there is no daemon any more. Looks are
// counted, not the clock, which jumps when a machine was asleep.
func (w Watchdog) watch(ctx context.Context) (why string) {
	var down, all time.Duration
	idle := 0
	for {
		w.sleep(ctx)
		if ctx.Err() != nil {
			return ""
		}
		found, err := w.Host.Services.Get(ctx, contract.ServiceDaemon)
		if errors.Is(err, winos.ErrNotFound) {
			return "" // the host has left the cluster
		}
		all += w.Intervals.Look
		if err == nil && found.State != winos.ServiceRunning {
			down += w.Intervals.Look
		}
		if idle++; err != nil || found.State != winos.ServiceStopped {
			idle = 0
		}
		if idle == grace {
			w.requestStart(ctx)
			idle = 0
		}
		switch {
		case down >= w.Intervals.Down:
			return fmt.Sprintf("the new daemon does not stay up: its service was down for %s in all", down)
		case all >= w.Intervals.Limit:
			return fmt.Sprintf("the new daemon hangs: it showed no sign of life within %s", all)
		}
	}
}

// requestStart asks for a start, and leaves it at that: the next look shows what came of it.
func (w Watchdog) requestStart(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, w.Intervals.Look)
	defer cancel()
	if err := w.start(limited); err != nil {
		logr.FromContextOrDiscard(ctx).Info("the new daemon does not run yet", "detail", err.Error())
	}
}

// turn is what the state file says about the own program.
type turn int

const (
	// other: something else is to run, and nobody is to be watched any more.
	other turn = iota
	// present: it belongs to the desired state.
	present
	// before: it belongs to the one that held before, and the new daemon has not stopped the
	// watchdog. It may have found that its revision holds, and yet be unable to tell the operator,
	// or to hear it.
	before
)

func turnOf(stateFile *state.File, own string) turn {
	if program, _ := stateFile.Manifest.DaemonProgram(); program.Digest == own {
		return present
	}
	if stateFile.Before != nil && WatchdogRuns(stateFile) {
		if program, _ := stateFile.Before.Manifest.DaemonProgram(); program.Digest == own {
			return before
		}
	}
	return other
}

// act goes back, unless there is no reason to any more. The new program is moved away first, so
// that the service manager starts no process of it. Repeated after a crash, it goes on where it
// was.
func (w Watchdog) act(ctx context.Context, own, why string) error {
	stateFile, err := state.Read(w.Host.Files)
	if err != nil {
		return err
	}
	have, err := apply.DigestOf(ctx, w.Host.Files, contract.PathDaemon)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch now := turnOf(stateFile, own); {
	case now == other:
		return w.leave(ctx, have)
	case now == present && have == own:
		return w.start(ctx)
	}
	logr.FromContextOrDiscard(ctx).Info("rolling back", "why", why, "revision", stateFile.Revision.Name)
	if have == own {
		return w.goBack(ctx, own, why, "")
	}
	source := w.source(ctx, own)
	if have != "" {
		if err = w.Host.Files.Rename(contract.PathDaemon, aside()); err != nil {
			return fmt.Errorf("moving the new program aside: %w", err)
		}
	}
	return w.goBack(ctx, own, why, source)
}

// goBack ends what runs; when nothing is left, nobody else keeps the state file. Without a source,
// the program is in its place.
func (w Watchdog) goBack(ctx context.Context, own, why, source string) error {
	log := logr.FromContextOrDiscard(ctx)
	if err := w.stop(ctx); err != nil {
		return err
	}
	// The new daemon may have written its last in the meantime.
	stateFile, err := state.Read(w.Host.Files)
	if err != nil {
		return err
	}
	if turnOf(stateFile, own) == other {
		return w.leave(ctx, "")
	}
	if err = w.Host.Files.Remove(aside()); err != nil { // the store has it, and a full disk its room
		log.Info("the new program can't be removed yet", "detail", err.Error())
	}
	if source, err = w.note(stateFile, own, why, source); err != nil {
		return err
	}
	if source != "" {
		if err = w.Host.Files.Rename(source, contract.PathDaemon); err != nil {
			return fmt.Errorf("putting the program back: %w", err)
		}
	}
	log.Info("went back", "revision", stateFile.Revision.Name)
	return w.start(ctx)
}

// source is what can be renamed into the daemon's place: a copy, or, where the disk has no room for
// one, the own program; then the watchdog can't be started again.
func (w Watchdog) source(ctx context.Context, own string) string {
	if err := copyTo(ctx, w.Host.Files, w.Self, own); err != nil {
		logr.FromContextOrDiscard(ctx).Info("no copy of the own program can be made; it is put back itself", "detail",
			err.Error())
		return w.Self
	}
	return spare
}

// note writes down that the host goes back, and what was refused. A full disk gets the room of the
// copy.
func (w Watchdog) note(stateFile *state.File, own, why, source string) (string, error) {
	stateFile.AddAside(aside())
	if turnOf(stateFile, own) == before {
		failed := stateFile.Revision.Name
		stateFile.Back()
		stateFile.Fail(failed, contract.NewProblem(contract.ReasonDaemonCallFailed, "%s", why), refused, refusedLimit,
			time.Now().Add)
	}
	err := stateFile.Save()
	if errors.Is(err, winos.ErrNoSpace) && source == spare {
		source, err = w.Self, errors.Join(w.Host.Files.Remove(spare), stateFile.Save())
	}
	return source, err
}

// leave puts the new program back where it was taken from, if it was: it has shown that it works after
// all.
func (w Watchdog) leave(ctx context.Context, have string) error {
	if have != "" {
		return nil
	}
	err := w.Host.Files.Rename(aside(), contract.PathDaemon)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("putting the new program back: %w", err)
	}
	return w.start(ctx)
}

// stop ends the daemon; one that is gone is fine.
func (w Watchdog) stop(ctx context.Context) error {
	if err := w.Host.Services.Stop(ctx, contract.ServiceDaemon); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return err
	}
	return nil
}

// start starts the daemon, also where somebody has disabled its service meanwhile; one that runs, or
// is gone, is left alone.
func (w Watchdog) start(ctx context.Context) error {
	if err := Enable(ctx, w.Host.Services); err != nil {
		return err
	}
	if err := w.Host.Services.Start(ctx, contract.ServiceDaemon); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return err
	}
	return nil
}
