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
	// turnLimit is how long a verb waits until another verb has ended. After that, the operator calls the verb again.
	turnLimit = time.Minute
	turnLook  = 50 * time.Millisecond
	// maxDenied is how many consecutive times Windows may deny access to the lock file, about five seconds in total.
	// Windows reports the same error for a file that is about to be deleted and for a file without permission.
	maxDenied = 100
)

// takeTurn takes the lock that lets only one verb run on this host, and returns a function that releases the lock. The
// lock is needed because some versions of OpenSSH for Windows don't kill a command when its connection breaks. So the
// operator's previous call may still be running. If the process that has the lock ends, the operating system releases
// the lock. If another verb keeps the lock for too long, takeTurn returns a *contract.Problem.
func takeTurn(ctx context.Context, programs winos.Programs) (release func() error, err error) {
	return acquireTurn(ctx, programs, turnLimit, func(context.Context, uint32) error { return nil })
}

// seizeTurn takes the same lock as takeTurn, but kills a process that has the lock.
func seizeTurn(ctx context.Context, programs winos.Programs) (release func() error, err error) {
	return acquireTurn(ctx, programs, turnLimit, func(ctx context.Context, holder uint32) error {
		if holder == 0 {
			return nil
		}
		logr.FromContextOrDiscard(ctx).Info("another call still runs and is ended", "pid", holder)
		return programs.Kill(ctx, holder, isVerb)
	})
}

const othersLimit = 5 * time.Minute

// afterOthers waits until no verb runs on this host, but at most othersLimit. If the daemon crashes, the service
// manager starts it again, even if a bootstrap has stopped the service in the meantime. Without the wait, this new
// daemon would read the state that the bootstrap replaces, and later overwrite the new state. After othersLimit or an
// error, the daemon continues, so that the host is still reconciled.
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

// isVerb reports whether exe is the installed daemon's program, or is named like a copy that the operator uploaded.
func isVerb(exe string) bool {
	name := strings.ToLower(exe[strings.LastIndexByte(exe, '\\')+1:])
	return strings.EqualFold(exe, contract.PathDaemon) || strings.HasPrefix(name, "wicd-") &&
		strings.HasSuffix(name, ".exe")
}

// acquireTurn takes the lock. While another process has the lock, acquireTurn passes that process's ID (0 if unknown)
// to the function `busy` and tries again. After the limit, acquireTurn returns a problem.
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
