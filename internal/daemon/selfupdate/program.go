package selfupdate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Program is the daemon's own program.
type Program struct {
	host  winos.Host
	state *state.File
	store *payload.Store
	// digest is the digest of this process's exe. It is empty if that exe isn't the exe of the service.
	digest string
	// `tested` is the digest of the last exe that passed the smoke test on this host.
	tested string
	// deadline ends this process if its program isn't accepted in time. It is nil if the program is not on trial.
	deadline *time.Timer
}

// New returns the program of this process. If digest is empty (see Program), the program is never replaced.
func New(host winos.Host, stateFile *state.File, digest string) *Program {
	return &Program{host: host, state: stateFile, store: payload.NewStore(host.Files), digest: digest}
}

// ErrReplaced means that the daemon's program was replaced by another one. This process must exit with an error, so
// that the service manager starts the new program.
var ErrReplaced = errors.New("the daemon's program was replaced by another")

// testPath is the path of the copy of another daemon's exe for the smoke test. The exe has its normal file name there.
const testPath = contract.DirStore + `\` + contract.ServiceDaemon + ".exe"

// testLimit limits a smoke test. A virus scanner may read all of a new exe before the exe starts.
const testLimit = time.Minute

// Replaces reports whether a manifest contains a daemon other than this program.
func (p *Program) Replaces(m contract.Manifest) bool {
	exe, ok := m.DaemonProgram()
	return ok && p.digest != "" && exe.Digest != p.digest
}

// ReplacedBy reports whether a pass has installed another program of the daemon.
func (p *Program) ReplacedBy(report apply.Report) bool {
	return p.digest != "" && slices.ContainsFunc(report.Steps, func(s plan.Step) bool {
		return s.Kind == plan.WriteFile && s.Name == contract.PathDaemon && s.Want != p.digest
	})
}

// SmokeTest checks that the daemon of a manifest can run on this host. If this process runs the same program, or if the
// program has passed the test before, SmokeTest does nothing.
func (p *Program) SmokeTest(ctx context.Context, m contract.Manifest) *contract.Problem {
	exe, _ := m.DaemonProgram()
	if !p.Replaces(m) || p.tested == exe.Digest {
		return nil
	}
	defer p.Tidy(ctx)
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

// Tidy removes the files of a smoke test, even if the test was interrupted.
func (p *Program) Tidy(ctx context.Context) {
	err := apply.UnstageFile(p.host.Files, testPath)
	for _, path := range []string{testPath, testPath + ".old"} {
		err = errors.Join(err, p.host.Files.Remove(path))
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("the files of the smoke test can't be removed", "detail", err.Error())
	}
}

// Replace tests and installs the daemon of a revision. If Replace returns nil, this process must exit.
func (p *Program) Replace(ctx context.Context, revision state.Revision) *contract.Problem {
	exe, _ := revision.Manifest.DaemonProgram()
	if problem := p.SmokeTest(ctx, revision.Manifest); problem != nil {
		return problem
	}
	if err := p.ensureRestart(ctx); err != nil {
		return contract.NewProblem(contract.ReasonServiceFailed, "%v", err)
	}
	if before := p.state.Before; before != nil { // without it, no rollback is possible
		if err := p.keep(ctx, *before); err != nil {
			return apply.FileProblem(err)
		}
		p.state.Update = &state.Update{Program: exe.Digest} // saved with the record of the moved file
	}
	if err := p.install(ctx, exe.Digest); err != nil {
		return apply.FileProblem(err)
	}
	logr.FromContextOrDiscard(ctx).Info("the daemon's program is replaced; the new program continues", "revision",
		revision.Name)
	return nil
}

// keep makes sure that the store has the previous revision's program, which a rollback needs.
func (p *Program) keep(ctx context.Context, before state.Revision) error {
	exe, known := before.Manifest.DaemonProgram()
	if !known {
		return nil
	}
	if exe.Digest == p.digest {
		return p.store.Adopt(ctx, contract.PathDaemon, []contract.Blob{{Digest: exe.Digest, Size: exe.Size}})
	}
	missing, err := p.store.Missing([]contract.Blob{{Digest: exe.Digest, Size: exe.Size}})
	if err == nil && len(missing) > 0 {
		return contract.NewProblem(contract.ReasonPayloadIncomplete, "the host can't roll back to revision %s: its "+
			"program is not in %s", before.Name, contract.DirStore)
	}
	return err
}

// ensureRestart makes sure that the service manager restarts the daemon when the daemon ends. An administrator may have
// disabled the service or changed its recovery actions.
func (p *Program) ensureRestart(ctx context.Context) error {
	own, err := p.host.Services.Get(ctx, contract.ServiceDaemon)
	if err != nil {
		return nil //nolint:nilerr // the next call of the service manager reports the error
	}
	delays, reset := plan.DaemonRecovery()
	if !own.NoAutoStart && slices.Equal(own.Recovery, delays) && own.RecoveryReset == reset {
		return nil
	}
	own.Recovery, own.RecoveryReset = delays, reset
	return p.host.Services.Apply(ctx, own.ServiceConfig)
}

func (p *Program) install(ctx context.Context, digest string) error {
	return p.copyTo(contract.PathDaemon, func(content apply.Content) error {
		return apply.WriteFile(ctx, p.host.Files, p.state, contract.PathDaemon, content.Digest, content.Content)
	}, digest)
}

// copyTo calls `write` with a blob's content and with the access rights for path. If the blob is damaged, copyTo
// deletes the blob and returns an error.
func (p *Program) copyTo(path string, write func(content apply.Content) error, digest string) error {
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
