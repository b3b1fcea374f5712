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
	// Limit is how long it may run without dismissing the guard; 8 min if 0: longer than a daemon
	// takes to see by itself that it must go back, and less than the operator gives a node by
	// default.
	Limit time.Duration
}

// The first pause before a version is tried again that had to be left, and the longest: see
// tend.Pace.
const (
	refused      = time.Minute
	refusedLimit = 20 * time.Minute
)

// grace is how many looks in a row a service that is stopped is left to the service manager. That
// waits for minutes when the daemon has failed often of late, such as in an exchange before, or for
// ever when somebody took its settings away.
const grace = 5

// killLimit bounds how long the end of a killed process is waited for.
const killLimit = 30 * time.Second

// aside is where the new program is moved. What is left of it, the daemon removes.
const aside = contract.PathDaemon + ".old-0"

// Watchdog watches over one exchange.
type Watchdog struct {
	// Host that it acts on.
	Host winos.Host
	// Self is the path of the own program, which is also the one to put back.
	Self string
	Pace Intervals
}

// Run returns when there is nothing left to guard, or ctx has ended. It may be ended and run again
// at any time.
func (g Watchdog) Run(ctx context.Context) error {
	for value, fallback := range map[*time.Duration]time.Duration{&g.Pace.Look: time.Second, &g.Pace.Down: time.Minute,
		&g.Pace.Limit: 8 * time.Minute} {
		if *value == 0 {
			*value = fallback
		}
	}
	own, err := apply.DigestOf(ctx, g.Host.Files, g.Self)
	if err != nil {
		return err
	}
	log := logr.FromContextOrDiscard(ctx)
	log.Info("guarding", "program", own)
	why := g.watch(ctx)
	for why != "" && ctx.Err() == nil {
		// What has begun is brought to its end: the daemon that is about to dismiss this guard may
		// be the one that is stopped.
		if err = g.act(context.WithoutCancel(ctx), own, why); err == nil {
			break
		}
		log.Info("going back did not succeed, and is tried again", "detail", err.Error())
		g.sleep(ctx)
	}
	log.Info("ended")
	return nil
}

func (g Watchdog) sleep(ctx context.Context) {
	select {
	case <-time.After(g.Pace.Look):
	case <-ctx.Done():
	}
}

// watch answers why it is time to act, or nothing when there is no daemon any more. Looks are
// counted, not the clock, which jumps when a machine was asleep.
func (g Watchdog) watch(ctx context.Context) (why string) {
	var down, all time.Duration
	idle := 0
	for {
		g.sleep(ctx)
		if ctx.Err() != nil {
			return ""
		}
		found, err := g.Host.Services.Get(ctx, contract.ServiceDaemon)
		if errors.Is(err, winos.ErrNotFound) {
			return "" // the host has left the cluster
		}
		all += g.Pace.Look
		if err == nil && found.State != winos.ServiceRunning {
			down += g.Pace.Look
		}
		if idle++; err != nil || found.State != winos.ServiceStopped {
			idle = 0
		}
		if idle == grace {
			g.rouse(ctx)
			idle = 0
		}
		switch {
		case down >= g.Pace.Down:
			return fmt.Sprintf("the new daemon does not stay up: its service was down for %s in all", down)
		case all >= g.Pace.Limit:
			return fmt.Sprintf("the new daemon hangs: it showed no sign of life within %s", all)
		}
	}
}

// rouse asks for a start, and leaves it at that: the next look shows what came of it.
func (g Watchdog) rouse(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, g.Pace.Look)
	defer cancel()
	if err := g.Host.Services.Start(limited, contract.ServiceDaemon); err != nil {
		logr.FromContextOrDiscard(ctx).Info("the new daemon does not run yet", "detail", err.Error())
	}
}

// turn is what the state file says about the own program.
type turn int

const (
	// other: something else is to run, and nobody is to be guarded any more.
	other turn = iota
	// present: it belongs to the desired state.
	present
	// before: it belongs to the one that held before, and the new daemon has not dismissed its
	// guard. It may have found that its version holds, and yet be unable to tell the operator, or
	// to hear it.
	before
)

func turnOf(book *state.File, own string) turn {
	if program, _ := book.Manifest.DaemonProgram(); program.Digest == own {
		return present
	}
	if book.Before != nil && WatchdogRuns(book) {
		if program, _ := book.Before.Manifest.DaemonProgram(); program.Digest == own {
			return before
		}
	}
	return other
}

// act goes back, unless there is no reason to any more. The new program is moved away first, so
// that the service manager starts no process of it. Repeated after a crash, it goes on where it
// was.
func (g Watchdog) act(ctx context.Context, own, why string) error {
	book, err := state.Read(g.Host.Files)
	if err != nil {
		return err
	}
	have, err := apply.DigestOf(ctx, g.Host.Files, contract.PathDaemon)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	switch now := turnOf(book, own); {
	case now == other:
		return g.leave(ctx, have)
	case now == present && have == own:
		return g.start(ctx)
	}
	logr.FromContextOrDiscard(ctx).Info("going back", "why", why, "version", book.Version)
	if have == own {
		return g.goBack(ctx, own, why, "")
	}
	source := g.source(ctx, own)
	if have != "" {
		if err = g.Host.Files.Rename(contract.PathDaemon, aside); err != nil {
			return fmt.Errorf("moving the new program aside: %w", err)
		}
	}
	return g.goBack(ctx, own, why, source)
}

// goBack ends what runs; when nothing is left, nobody else keeps the state file. Without a source, the
// program is in its place.
func (g Watchdog) goBack(ctx context.Context, own, why, source string) error {
	log := logr.FromContextOrDiscard(ctx)
	if err := g.stop(ctx); err != nil {
		return err
	}
	// The new daemon may have written its last in the meantime.
	book, err := state.Read(g.Host.Files)
	if err != nil {
		return err
	}
	if turnOf(book, own) == other {
		return g.leave(ctx, "")
	}
	if err = g.Host.Files.Remove(aside); err != nil { // the store has it, and a full disk its room
		log.Info("the new program can't be removed yet", "detail", err.Error())
	}
	if source, err = g.note(book, own, why, source); err != nil {
		return err
	}
	if source != "" {
		if err = g.Host.Files.Rename(source, contract.PathDaemon); err != nil {
			return fmt.Errorf("putting the program back: %w", err)
		}
	}
	log.Info("went back", "version", book.Version)
	return g.start(ctx)
}

// source is what can be renamed into the daemon's place: a copy, or, where the disk has no room for
// one, the own program; then the guard can't be started again.
func (g Watchdog) source(ctx context.Context, own string) string {
	if err := copyTo(ctx, g.Host.Files, g.Self, own); err != nil {
		logr.FromContextOrDiscard(ctx).Info("no copy of the own program can be made; it is put back itself", "detail",
			err.Error())
		return g.Self
	}
	return spare
}

// note writes down that the host goes back, and what was refused. A full disk gets the room of the
// copy.
func (g Watchdog) note(book *state.File, own, why, source string) (string, error) {
	book.AddAside(aside)
	if turnOf(book, own) == before {
		failed, pause := book.Version, refused
		if last := book.Failed; last != nil && last.Version == failed {
			pause = min(max(2*last.Pause, refused), refusedLimit)
		}
		book.Back()
		book.Fail(failed, contract.NewProblem(contract.ReasonDaemonCallFailed, "%s", why), pause,
			time.Now().Add(pause))
	}
	err := book.Save()
	if errors.Is(err, winos.ErrNoSpace) && source == spare {
		source, err = g.Self, errors.Join(g.Host.Files.Remove(spare), book.Save())
	}
	return source, err
}

// leave puts the new program back where it was taken from, if it was: it has proven itself after
// all.
func (g Watchdog) leave(ctx context.Context, have string) error {
	if have != "" {
		return nil
	}
	err := g.Host.Files.Rename(aside, contract.PathDaemon)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("putting the new program back: %w", err)
	}
	return g.start(ctx)
}

// stop ends the daemon, which may not do so when it is asked.
func (g Watchdog) stop(ctx context.Context) error {
	err := g.Host.Services.Stop(ctx, contract.ServiceDaemon)
	if err == nil || errors.Is(err, winos.ErrNotFound) {
		return nil
	}
	found, lookErr := g.Host.Services.Get(ctx, contract.ServiceDaemon)
	if lookErr != nil || found.PID == 0 {
		return errors.Join(err, lookErr)
	}
	logr.FromContextOrDiscard(ctx).Info("the new daemon does not stop, and is killed", "detail", err.Error())
	limited, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	if err = g.Host.Programs.Kill(limited, found.PID); err != nil {
		return err
	}
	return g.Host.Services.Stop(ctx, contract.ServiceDaemon)
}

// start starts the daemon; one that runs, or is gone, is left alone.
func (g Watchdog) start(ctx context.Context) error {
	if err := g.Host.Services.Start(ctx, contract.ServiceDaemon); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return err
	}
	return nil
}
