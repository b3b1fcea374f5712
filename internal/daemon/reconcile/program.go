package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// A manifest that brings another daemon is the other one's to carry out, which knows all that is in
// it:
//
//	old: rehearse ── does not run here: refused, nothing has changed
//	     note in the state what is on trial ── start the rollback watchdog ── exchange the exe ──
//	     end, with an error: the service manager starts the new one
//	new: attempt ── holds: proven; the guard is dismissed, and only now the version is on the Node
//	             ├─ fails: back to what held, the old exe included ── end
//	             └─ does not come up, or hangs: the guard puts the old exe back and notes it in the ledger
//	old: holds what held, and dismisses the guard; the ledger says what was refused, and until when
//
// A daemon that dies anywhere is started again by the service manager, whichever it then is, and
// goes on from the ledger.

// rehearsal is where another daemon's exe is tried, under its own name.
const rehearsal = contract.DirStore + `\` + contract.ServiceDaemon + ".exe"

// rehearsalLimit bounds a rehearsal. A virus scanner may read all of a new exe before it starts.
const rehearsalLimit = time.Minute

// exchanges says whether a manifest brings another daemon than this one.
func (t *Reconciler) exchanges(m contract.Manifest) bool {
	program, ok := m.DaemonProgram()
	return ok && t.Program != "" && program.Digest != t.Program
}

// exchangedBy says whether a pass has put another daemon in place.
func (t *Reconciler) exchangedBy(report apply.Report) bool {
	return t.Program != "" && slices.ContainsFunc(report.Steps, func(s plan.Step) bool {
		return s.Kind == plan.WriteFile && s.Name == contract.PathDaemon && s.Want != t.Program
	})
}

// rehearse makes sure that the daemon of a manifest, if it is another one, runs on this host at
// all.
func (t *Reconciler) rehearse(ctx context.Context, m contract.Manifest) *contract.Problem {
	program, _ := m.DaemonProgram()
	if !t.exchanges(m) || t.tried == program.Digest {
		return nil
	}
	defer t.tidy(ctx)
	if err := t.copyTo(rehearsal, func(content apply.Content) error {
		if err := apply.StageFile(ctx, t.Host.Files, rehearsal, content); err != nil {
			return err
		}
		return apply.CommitFile(t.Host.Files, rehearsal, rehearsal+".old")
	}, program.Digest); err != nil {
		return apply.FileProblem(err)
	}
	limited, cancel := context.WithTimeout(ctx, rehearsalLimit)
	defer cancel()
	code, err := t.Host.Programs.Run(limited, rehearsal, "version")
	if err == nil && code != 0 {
		err = fmt.Errorf("it ended with %d", code)
	}
	if err != nil {
		return contract.NewProblem(contract.ReasonDaemonCallFailed, "the new daemon does not run on this host: %v", err)
	}
	t.tried = program.Digest
	return nil
}

// tidy removes what a rehearsal leaves, or one that was cut short.
func (t *Reconciler) tidy(ctx context.Context) {
	err := apply.UnstageFile(t.Host.Files, rehearsal)
	for _, path := range []string{rehearsal, rehearsal + ".old"} {
		err = errors.Join(err, t.Host.Files.Remove(path))
	}
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("what was tried can't be removed", "detail", err.Error())
	}
}

// copyTo hands out a blob; one that is damaged is dropped.
func (t *Reconciler) copyTo(path string, write func(content apply.Content) error, digest string) error {
	content, err := t.store.Open(digest)
	if err != nil {
		return err
	}
	err = errors.Join(write(apply.Content{Digest: digest, Content: content, Access: state.Access(path)}), content.Close())
	if errors.Is(err, apply.ErrDigest) {
		return errors.Join(err, t.store.Drop(digest))
	}
	return err
}

// exchange puts the daemon of the ledger's manifest in place of this one; this process is to end
// then.
func (t *Reconciler) exchange(ctx context.Context, node *unstructured.Unstructured) apply.Report {
	program, _ := t.Book.Manifest.DaemonProgram()
	problem := t.rehearse(ctx, t.Book.Manifest)
	if problem == nil {
		problem = t.postGuard(ctx)
	}
	if problem == nil {
		err := t.copyTo(contract.PathDaemon, func(content apply.Content) error {
			return apply.WriteFile(ctx, t.Host.Files, t.Book, contract.PathDaemon, content.Digest, content.Content)
		}, program.Digest)
		if err == nil {
			logr.FromContextOrDiscard(ctx).Info("the daemon's program is exchanged; the new one goes on", "version",
				t.Book.Version)
			t.exchanged = true
			return apply.Report{}
		}
		problem = apply.FileProblem(err)
	}
	if ctx.Err() != nil || t.Book.Before == nil {
		t.attempting = true
		return apply.Report{Failed: []*contract.Problem{problem}}
	}
	return t.back(ctx, node, problem, false)
}

// postGuard has this daemon's program stand by while another one shows what it can do. Where
// nothing has held before there is nothing to go back to.
func (t *Reconciler) postGuard(ctx context.Context) *contract.Problem {
	if t.Book.Before == nil {
		return nil
	}
	if err := selfupdate.StartWatchdog(ctx, t.Host, t.Book, t.Program); err != nil {
		return problemOf(contract.ReasonServiceFailed, fmt.Errorf("the new daemon can't be guarded: %w", err))
	}
	return nil
}

// guardedLife is how long a daemon that has proven nothing yet must have lived until it is trusted
// to go back by itself, or when it is told to.
const guardedLife = time.Minute

// relieve dismisses the guard once this daemon can be told to go back, which takes that it hears
// the API server, and either what it was to prove holds, or it has lived for a while. It comes
// before the version is on the Node: nobody takes that back.
func (t *Reconciler) relieve(ctx context.Context, node *unstructured.Unstructured) {
	if !selfupdate.WatchdogRuns(t.Book) || node == nil || !t.Book.Proven && t.Clock.Since(t.since) < guardedLife {
		return
	}
	if err := selfupdate.StopWatchdog(ctx, t.Host, t.Book); err != nil {
		logr.FromContextOrDiscard(ctx).Info("the guard can't be dismissed", "detail", err.Error())
	}
}

// doubtLimit is how long a daemon waits to read a manifest of which another one could note only
// part. Nothing is done meanwhile; the services run.
const doubtLimit = 5 * time.Minute

// doubt finds out whether the ledger's desired state is all known to this daemon.
func (t *Reconciler) doubt() {
	m := t.Book.Manifest
	if t.exchanges(m) {
		return // another one will know
	}
	t.unsure = t.Book.Partial || m.Validate() != nil || t.attempting && m.Confidential != "" && t.confidential == nil
	t.unsureSince = t.Clock.Now()
}

// inDoubt says that what is on trial is not known well enough to be tried.
func (t *Reconciler) inDoubt() bool { return t.unsure && t.attempting }

// assured says whether a desired state that was read again is what the ledger has.
func (t *Reconciler) assured(ctx context.Context, w *candidate) bool {
	if w.Version != t.Book.Version || w.Manifest.Digest() != t.Book.Manifest.Digest() || w.Manifest.Validate() != nil {
		return false
	}
	t.unsure = false
	if w.confidential != nil && t.confidential == nil {
		t.confidential = w.confidential
		if err := t.vault.Keep(ctx, w.Manifest.Confidential, w.data); err != nil {
			logr.FromContextOrDiscard(ctx).Info("the confidential part can't be kept", "detail", err.Error())
		}
	}
	t.follows()
	return true
}

// despair waits for what is on trial to be read, and goes back when that takes too long.
func (t *Reconciler) despair(ctx context.Context, node *unstructured.Unstructured, problem *contract.Problem) {
	report := apply.Report{}
	if problem != nil {
		report.Failed = []*contract.Problem{problem}
	}
	if t.Clock.Since(t.unsureSince) < doubtLimit || t.Book.Before == nil {
		t.next = t.Clock.Now().Add(t.Pace.Glance)
		if len(report.Failed) > 0 && t.Client != nil {
			t.publish(ctx, node, report)
		}
		return
	}
	if problem == nil {
		problem = contract.NewProblem(contract.ReasonManifestMissing, "the manifest could not be read within %s",
			doubtLimit)
	}
	report = t.back(ctx, node, problem, true)
	if !t.exchanged {
		t.next = t.Clock.Now().Add(t.report(ctx, node, report, nil, true))
	}
}
