package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// `released` is the flag that tells the one-shot service that the host was released, so no caller reads the answer.
const released = "--released"

const releaseRetry = time.Minute

// cleanReleased starts the one-shot service that cleans this host, and waits until that service stops the daemon. If
// the service ends early, for example after a failure, cleanReleased starts it again. If a verb has removed the
// service, the operator wants this host again. Then cleanReleased returns, and the daemon checks again whether its host
// is released.
func cleanReleased(ctx context.Context, o Options, stateFile *state.File) {
	log, retry := logr.FromContextOrDiscard(ctx), cmp.Or(o.Intervals.FailingLimit, releaseRetry)
	log.Info("the operator has released this host; the host is cleaned")
	for begun := false; ctx.Err() == nil; {
		err := startRelease(ctx, o, stateFile, begun)
		if begun && errors.Is(err, winos.ErrNotFound) {
			log.Info("another call has ended the cleaning of this host")
			return
		}
		begun = begun || err == nil
		if err != nil {
			log.Error(err, "this host can't be cleaned now", "retry", retry)
		}
		loop.Wait(ctx, clock.RealClock{}, nil, retry)
	}
}

// startRelease copies this program to a directory outside C:\k, because the cleanup deletes C:\k, and starts the
// one-shot service with the copy. If begun is set, startRelease doesn't create the service. If the service is then
// missing, it returns winos.ErrNotFound.
func startRelease(ctx context.Context, o Options, stateFile *state.File, begun bool) error {
	home := homeOf(stateFile.RPCDir)
	if home == "" {
		home = o.HomeDir
	}
	digest, err := apply.DigestOf(ctx, o.Host.Files, o.Self)
	if err != nil {
		return fmt.Errorf("reading this program: %w", err)
	}
	where := Where{Home: home, Self: RPCPath(home) + `\` + contract.UploadedName(digest), Released: true}
	if err = copyUnlessThere(ctx, o.Host.Files, o.Self, where.Self, digest); err != nil {
		return err
	}
	if begun {
		return o.Host.Services.Start(ctx, contract.ServiceCleanup)
	}
	return beginCleanup(ctx, o.Host, where)
}

// homeOf returns the parent of an RPC directory, or an empty string if rpcDir isn't an RPC directory.
func homeOf(rpcDir string) string {
	home, ours := strings.CutSuffix(rpcDir, `\`+contract.RPCDir)
	if !ours {
		return ""
	}
	return home
}

func copyUnlessThere(ctx context.Context, files winos.Files, from, to, digest string) error {
	if present, err := apply.DigestOf(ctx, files, to); err == nil && present == digest {
		return nil
	}
	if err := files.MkdirAll(state.Parent(to), winos.AccessAdministrators); err != nil {
		return fmt.Errorf("creating the RPC directory: %w", err)
	}
	r, err := files.Open(from)
	if err != nil {
		return fmt.Errorf("opening this program: %w", err)
	}
	return errors.Join(winos.WriteFile(files, to, r, winos.AccessAdministrators), r.Close())
}

// serveRelease runs in the one-shot service: it cleans a released host, and then removes the service and its program.
// If something can't be removed, serveRelease returns an error and the service stays, so that the next boot starts it
// again.
func serveRelease(ctx context.Context, host winos.Host, where Where) (err error) {
	end, err := takeTurn(ctx, host.Programs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	answer, err := Cleanup(ctx, host, where)
	if err != nil {
		return err
	}
	var left []error
	for _, p := range answer.Left {
		left = append(left, &p)
	}
	if len(left) > 0 {
		return fmt.Errorf("cleaning a released host: %w", errors.Join(left...))
	}
	return errors.Join(host.Services.DeleteAtStop(ctx, contract.ServiceCleanup), winos.RemoveInUse(host, where.Self),
		host.Programs.RemoveAtBoot(RPCPath(where.Home)))
}
