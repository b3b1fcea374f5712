package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// A manifest that brings another daemon is the other one's to carry out, which knows all that is in
// it:
//
//	old: smoke test ── does not run here: failed, nothing has changed
//	     write down what is on trial ── start the rollback watchdog ── replace the exe ──
//	     end, with an error: the service manager starts the new one
//	new: apply ── holds: verified; the watchdog is stopped, and only now the revision is on the Node
//	           ├─ fails: back to what held, the old exe included ── end
//	           └─ does not come up, or hangs: the watchdog puts the exe of what held back and writes down why
//	old: keeps what held, and stops the watchdog; the state file says what failed, and until when
//
// A daemon that dies anywhere is started again by the service manager, whichever it then is, and
// goes on from the state file.

// program is the daemon's own.
type program struct {
	host  winos.Host
	state *state.File
	store *payload.Store
	// digest of the exe that this process runs; empty when that is not the service's.
	digest string
	// tested is the digest of an exe that was seen to run on this host.
	tested string
	// since is when this daemon began to reconcile.
	since time.Time
}

// testPath is where another daemon's exe is tried, under its own name.
const testPath = contract.DirStore + `\` + contract.ServiceDaemon + ".exe"

// testLimit bounds a smoke test. A virus scanner may read all of a new exe before it starts.
const testLimit = time.Minute

// replaces says whether a manifest brings another daemon than this one.
func (p *program) replaces(m contract.Manifest) bool {
	exe, ok := m.DaemonProgram()
	return ok && p.digest != "" && exe.Digest != p.digest
}

// replacedBy says whether a pass has put another daemon in place.
func (p *program) replacedBy(report apply.Report) bool {
	return p.digest != "" && slices.ContainsFunc(report.Steps, func(s plan.Step) bool {
		return s.Kind == plan.WriteFile && s.Name == contract.PathDaemon && s.Want != p.digest
	})
}

// smokeTest makes sure that the daemon of a manifest, if it is another one, runs on this host at
// all.
func (p *program) smokeTest(ctx context.Context, m contract.Manifest) *contract.Problem {
	exe, _ := m.DaemonProgram()
	if !p.replaces(m) || p.tested == exe.Digest {
		return nil
	}
	defer p.tidy(ctx)
	if err := p.copyTo(testPath, func(content apply.Content) error {
		if err := apply.StageFile(ctx, p.host.Files, testPath, content); err != nil {
			return err
		}
		return apply.CommitFile(ctx, p.host.Files, testPath, testPath+".old")
	}, exe.Digest); err != nil {
		return apply.FileProblem(err)
	}
	limited, cancel := context.WithTimeout(ctx, testLimit)
	defer cancel()
	var code int
	err := winos.UntilClosed(limited.Done(), func() (err error) {
		code, err = p.host.Programs.Run(limited, testPath, "version")
		return err
	})
	if err == nil && code != 0 {
		err = fmt.Errorf("it ended with %d", code)
	}
	if err != nil {
		return contract.NewProblem(contract.ReasonDaemonCallFailed, "the new daemon does not run on this host: %v", err)
	}
	p.tested = exe.Digest
	return nil
}

// tidy removes what a smoke test leaves, or one that was cut short.
func (p *program) tidy(ctx context.Context) {
	err := apply.UnstageFile(p.host.Files, testPath)
	for _, path := range []string{testPath, testPath + ".old"} {
		err = errors.Join(err, p.host.Files.Remove(path))
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("what was tried can't be removed", "detail", err.Error())
	}
}

// copyTo hands out a blob; one that is damaged is dropped.
func (p *program) copyTo(path string, write func(content apply.Content) error, digest string) error {
	var content io.ReadCloser
	err := winos.UntilClosed(nil, func() (err error) { content, err = p.store.Open(digest); return err })
	if err != nil {
		return err
	}
	err = errors.Join(write(apply.Content{Digest: digest, Content: content, Access: state.Access(path)}),
		content.Close())
	if errors.Is(err, apply.ErrDigest) {
		return errors.Join(err, p.store.Drop(digest))
	}
	return err
}

// replace puts the daemon of the state's manifest in place of this one; this process is to end
// then.
func (p *program) replace(ctx context.Context) *contract.Problem {
	exe, _ := p.state.Manifest.DaemonProgram()
	if problem := p.smokeTest(ctx, p.state.Manifest); problem != nil {
		return problem
	}
	if err := selfupdate.Enable(ctx, p.host.Services); err != nil { // the service manager starts the new one
		return problemOf(contract.ReasonServiceFailed, err)
	}
	if p.state.Before != nil { // otherwise nothing has held, and there is nothing to go back to
		if err := selfupdate.StartWatchdog(ctx, p.host, p.state, p.digest); err != nil {
			return problemOf(contract.ReasonServiceFailed, fmt.Errorf("starting the rollback watchdog: %w", err))
		}
	}
	err := p.copyTo(contract.PathDaemon, func(content apply.Content) error {
		return apply.WriteFile(ctx, p.host.Files, p.state, contract.PathDaemon, content.Digest, content.Content)
	}, exe.Digest)
	if err != nil {
		return apply.FileProblem(err)
	}
	logr.FromContextOrDiscard(ctx).Info("the daemon's program is replaced; the new one goes on", "revision",
		p.state.Revision.Name)
	return nil
}

// ownLife is how long a daemon that has verified nothing yet must have lived until it is trusted to
// go back by itself, or when it is told to.
const ownLife = time.Minute

// relieve stops the rollback watchdog once this daemon can be told to go back, which takes that it
// hears the API server, and either what was on trial holds, or it has lived for a while. It comes
// before the revision is on the Node: nobody takes that back. So a watchdog that can't be stopped is waited for; its
// program may go later.
func (p *program) relieve(ctx context.Context, node *unstructured.Unstructured, clock clock.Clock) *contract.Problem {
	if !selfupdate.WatchdogRuns(p.state) || node == nil || !p.state.Verified && clock.Since(p.since) < ownLife {
		return nil
	}
	if err := selfupdate.RemoveWatchdog(ctx, p.host.Services); err != nil {
		return problemOf(contract.ReasonServiceFailed, err)
	}
	if err := selfupdate.StopWatchdog(ctx, p.host, p.state); err != nil {
		logr.FromContextOrDiscard(ctx).Info("the rollback watchdog's program can't be removed", "detail", err.Error())
	}
	return nil
}
