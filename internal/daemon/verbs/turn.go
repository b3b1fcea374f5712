package verbs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	// turnLimit is how long another verb is waited for. The slowest, switching on a Windows
	// feature, takes minutes; the operator calls again.
	turnLimit = time.Minute
	turnLook  = 50 * time.Millisecond
	// maxDenied is how often in a row access to the lock's file may be denied, for five seconds:
	// while a file is about to be deleted, Windows says the same as of one that nobody may open.
	maxDenied = 100
)

// takeTurn waits until no other verb runs on this host, and gives what ends its turn. An SSH
// connection that breaks does not end its command in every version of OpenSSH for Windows, so the
// operator's next call may find the one before still at work. The lock is the operating system's
// and ends with the process that holds it. While another verb holds it for too long, it is a
// *contract.Problem.
func takeTurn(ctx context.Context, programs winos.Programs) (release func() error, err error) {
	return acquireTurn(ctx, programs, turnLimit, func(context.Context, uint32) error { return nil })
}

// seizeTurn takes the turn and ends the process that holds it.
func seizeTurn(ctx context.Context, programs winos.Programs) (release func() error, err error) {
	return acquireTurn(ctx, programs, turnLimit, func(ctx context.Context, holder uint32) error {
		if holder == 0 {
			return nil
		}
		logr.FromContextOrDiscard(ctx).Info("another call is still at work and is ended", "pid", holder)
		return programs.Kill(ctx, holder, isVerb)
	})
}

// othersLimit bounds how long a daemon that starts waits for a verb.
const othersLimit = 5 * time.Minute

// afterOthers waits until no verb is at work on this host, but not for ever. A daemon that crashed is
// started again by the service manager even if a bootstrap has stopped it since; it would go by the state that the
// bootstrap replaces, and write that back. A lock that can't be taken keeps no host from being held as it should be.
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
		log.Error(err, "goes on although another call may be at work on this host")
	}
}

// isVerb recognises the daemon's program, installed or in an RPC directory.
func isVerb(exe string) bool {
	name := strings.ToLower(exe[strings.LastIndexByte(exe, '\\')+1:])
	return strings.EqualFold(exe, contract.PathDaemon) || strings.HasPrefix(name, "wicd-") &&
		strings.HasSuffix(name, ".exe")
}

// acquireTurn takes the turn within a limit, and calls busy each time that it finds it taken.
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
		select {
		case <-time.After(turnLook):
		case <-ctx.Done():
			return nil, contract.NewProblem(contract.ReasonHostBusy, "process %d is still at work on this host", holder)
		}
	}
}
