package verbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	// turnLimit is how long a verb waits for another verb. The slowest verb enables a Windows feature, which takes
	// minutes. If a verb waits in vain, the operator calls it again.
	turnLimit = time.Minute
	turnLook  = 50 * time.Millisecond
	// maxDenied is how often in a row access to the lock file may be denied. This takes five seconds. Windows reports
	// the same error for a file that is about to be deleted and for a file without permission.
	maxDenied = 100
)

// takeTurn waits until no other verb runs on this host, and returns a function that releases the lock. Not every
// version of OpenSSH for Windows kills a command when its connection breaks, so the previous call of the operator may
// still be running. The lock belongs to the operating system and ends with the process that holds it. If another verb
// holds the lock for too long, takeTurn returns a *contract.Problem.
func takeTurn(ctx context.Context, programs winos.Programs) (release func() error, err error) {
	return acquireTurn(ctx, programs, turnLimit, func(context.Context, uint32) error { return nil })
}

// seizeTurn takes the lock and kills the process that holds it.
func seizeTurn(ctx context.Context, programs winos.Programs) (release func() error, err error) {
	return acquireTurn(ctx, programs, turnLimit, func(ctx context.Context, holder uint32) error {
		if holder == 0 {
			return nil
		}
		logr.FromContextOrDiscard(ctx).Info("another call is still at work and is ended", "pid", holder)
		return programs.Kill(ctx, holder, isVerb)
	})
}

// othersLimit bounds how long a starting daemon waits for a verb.
const othersLimit = 5 * time.Minute

// afterOthers waits until no verb runs on this host, for at most othersLimit. If a daemon crashes, the service manager
// restarts it even if a bootstrap has stopped it since then. Without the wait, that daemon would read the state that
// the bootstrap replaces, and write it back. If the lock can't be taken, the daemon continues, so that the host is
// still reconciled.
func afterOthers(ctx context.Context, programs winos.Programs) {
	log, said := logr.FromContextOrDiscard(ctx), false
	release, err := acquireTurn(ctx, programs, othersLimit, func(_ context.Context, holder uint32) error {
		if !said {
			log.Info("waits for another call on this host to end", "pid", holder)
		}
		said = true
		return nil
	})
	if err == nil {
		err = release()
	}
	if err != nil && ctx.Err() == nil {
		log.Error(err, "continuing although another call may be running on this host")
	}
}

// isVerb reports whether an exe is the daemon's program, installed or in an RPC directory.
func isVerb(exe string) bool {
	name := strings.ToLower(exe[strings.LastIndexByte(exe, '\\')+1:])
	return strings.EqualFold(exe, contract.PathDaemon) || strings.HasPrefix(name, "wicd-") &&
		strings.HasSuffix(name, ".exe")
}

// acquireTurn takes the lock within a limit. It calls busy each time that another process holds the lock.
func acquireTurn(ctx context.Context, programs winos.Programs, limit time.Duration,
	busy func(ctx context.Context, holder uint32) error) (release func() error, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for denied := 0; ; {
		release, holder, err := programs.Lock(ctx, contract.PathLock)
		switch {
		case err == nil:
			return release, nil
		case errors.Is(err, winos.ErrDenied) && denied < maxDenied:
			denied++
		case !errors.Is(err, winos.ErrInUse):
			return nil, fmt.Errorf("waiting for other calls on this host: %w", err)
		default:
			denied = 0
		}
		if err = busy(ctx, holder); err != nil {
			return nil, fmt.Errorf("ending another call on this host: %w", err)
		}
		if !loop.Wait(ctx, clock.RealClock{}, nil, turnLook) {
			return nil, contract.NewProblem(contract.ReasonHostBusy, "process %d is still at work on this host", holder)
		}
	}
}
