package keep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/agent/layout"
	"github.com/windows-nodes/wmco/internal/agent/ledger"
	"github.com/windows-nodes/wmco/internal/agent/place"
	"github.com/windows-nodes/wmco/internal/agent/plan"
	"github.com/windows-nodes/wmco/internal/agent/target"
	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/contract"
)

// run is one pass while it takes its steps.
type run struct {
	*Keeper
	want   target.Target
	have   plan.Observed
	report *Report
	// broken services can't be started, because something that they need failed.
	broken map[string]bool
	log    logr.Logger
}

// take takes one step, unless what it needs is broken, and notes the outcome.
func (r *run) take(ctx context.Context, step plan.Step) {
	switch step.Kind {
	case plan.StopService, plan.SetService, plan.StartService:
		if r.needsBroken(step.Name) {
			return
		}
	}
	reason, err := r.do(ctx, step)
	if err != nil {
		problem := asProblem(reason, err)
		r.log.Info("a step failed", "step", step.Kind, "name", step.Name, "reason", problem.Reason, "detail", problem.Detail)
		r.report.Failed = append(r.report.Failed, problem)
		return
	}
	r.log.Info("took a step", "step", step.Kind, "name", step.Name, "why", step.Why)
	r.report.Steps = append(r.report.Steps, step)
	r.repeats.took(step)
}

// needsBroken says whether a service or one that it depends on is broken; it then is broken itself.
func (r *run) needsBroken(name string) bool {
	if !r.broken[name] {
		s := r.service(name)
		r.broken[name] = slices.ContainsFunc(s.Dependencies, func(d string) bool { return r.broken[d] })
	}
	return r.broken[name]
}

func (r *run) do(ctx context.Context, step plan.Step) (contract.Reason, error) {
	switch step.Kind {
	case plan.RemoveService:
		return contract.ReasonServiceFailed, r.removeService(ctx, step.Name)
	case plan.SetVariable:
		return contract.ReasonEnvironmentFailed, r.setVariable(ctx, step.Name, r.want.Environment[step.Name])
	case plan.UnsetVariable:
		return contract.ReasonEnvironmentFailed, r.unsetVariable(ctx, step.Name)
	case plan.PutBack:
		return contract.ReasonEnvironmentFailed, PutBack(ctx, r.host, r.book, strings.ToLower(step.Name))
	case plan.WriteFile:
		return contract.ReasonFileFailed, r.writeFile(ctx, step.Name)
	case plan.RemoveFile:
		return contract.ReasonFileFailed, r.removeFile(step.Name)
	case plan.StopService:
		return contract.ReasonServiceFailed, r.stopService(ctx, step.Name)
	case plan.SetService:
		return contract.ReasonServiceFailed, r.setService(ctx, step.Name)
	case plan.StartService:
		return contract.ReasonServiceFailed, r.startService(ctx, step.Name)
	}
	return contract.ReasonInternal, fmt.Errorf("step %q is not known", step.Kind)
}

func (r *run) removeService(ctx context.Context, name string) error {
	if err := r.host.Services.Stop(ctx, name); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return fmt.Errorf("stopping service %s: %w", name, err)
	}
	if err := r.host.Services.Delete(ctx, name); err != nil {
		return fmt.Errorf("removing service %s: %w", name, err)
	}
	r.lives.stopped(name)
	delete(r.book.Services, name)
	return r.book.Save()
}

func (r *run) setVariable(ctx context.Context, name, value string) error {
	if err := r.touch(name); err != nil {
		return err
	}
	if err := r.host.Environment.Set(ctx, name, value); err != nil {
		return fmt.Errorf("setting environment variable %s: %w", name, err)
	}
	return nil
}

func (r *run) unsetVariable(ctx context.Context, name string) error {
	if err := r.touch(name); err != nil {
		return err
	}
	if err := r.host.Environment.Unset(ctx, name); err != nil {
		return fmt.Errorf("removing environment variable %s: %w", name, err)
	}
	return nil
}

// touch notes what a variable was before us.
func (r *run) touch(name string) error {
	var before *string
	for other, value := range r.have.Environment {
		if strings.EqualFold(other, name) {
			before = &value
		}
	}
	r.book.TouchVariable(name, before)
	return r.book.Save()
}

// PutBack gives a variable of ours, named in lower case, the value that it had before us, and forgets it. A variable that is not ours is
// left alone.
func PutBack(ctx context.Context, host winos.Host, book *ledger.Book, key string) error {
	v, ours := book.Environment[key]
	if !ours {
		return nil
	}
	var err error
	if v.Before != nil {
		err = host.Environment.Set(ctx, v.Name, *v.Before)
	} else {
		err = host.Environment.Unset(ctx, v.Name)
	}
	if err != nil {
		return fmt.Errorf("putting environment variable %s back: %w", v.Name, err)
	}
	delete(book.Environment, key)
	return book.Save()
}

func (r *run) writeFile(ctx context.Context, path string) (err error) {
	f := r.want.Files[slices.IndexFunc(r.want.Files, func(f target.File) bool { return f.Path == path })]
	defer func() {
		for _, name := range f.Services {
			r.broken[name] = r.broken[name] || err != nil
		}
	}()
	if err = layout.Ensure(r.host.Files, r.book, layout.Parent(path)); err != nil {
		return place.Problem(err)
	}
	r.book.AddFile(path)
	// From here on, a process that reads this file may get the new content, so what the ledger says about it counts no longer.
	for _, name := range f.Services {
		if _, ours := r.book.Services[name]; ours {
			r.book.SetService(name, ledger.Start{})
		}
	}
	if err = r.book.Save(); err != nil {
		return place.Problem(err)
	}
	content := io.NopCloser(bytes.NewReader(f.Content))
	if f.Content == nil {
		if content, err = r.store.Open(f.Digest); err != nil {
			return err
		}
	}
	err = errors.Join(place.Write(ctx, r.host.Files, r.book, path, f.Digest, content), content.Close())
	r.digests.drop(path)
	if errors.Is(err, place.ErrDigest) {
		return place.Problem(errors.Join(err, r.store.Drop(f.Digest)))
	}
	if err != nil {
		return place.Problem(err)
	}
	return nil
}

func (r *run) removeFile(path string) error {
	if err := r.host.Files.Remove(path); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	r.book.RemoveFile(path)
	return r.book.Save()
}

func (r *run) service(name string) target.Service {
	return r.want.Services[slices.IndexFunc(r.want.Services, func(s target.Service) bool { return s.Name == name })]
}

// note writes with what a service is about to be started, and which process does not have that yet.
func (r *run) note(name string) error {
	start := ledger.Start{Inputs: r.service(name).Inputs, NotPID: r.have.Services[name].PID}
	if r.book.Services[name] == start {
		return nil
	}
	r.book.SetService(name, start)
	return r.book.Save()
}

func (r *run) stopService(ctx context.Context, name string) error {
	r.lives.stopped(name)
	if err := r.host.Services.Stop(ctx, name); err != nil {
		r.broken[name] = true
		return fmt.Errorf("stopping service %s: %w", name, err)
	}
	return nil
}

func (r *run) setService(ctx context.Context, name string) error {
	// First the ledger, so that a service made by us is never unknown.
	if _, ours := r.book.Services[name]; !ours {
		r.book.SetService(name, ledger.Start{})
		if err := r.book.Save(); err != nil {
			return err
		}
	}
	if err := r.host.Services.Apply(ctx, r.service(name).ServiceConfig); err != nil {
		r.broken[name] = true
		return fmt.Errorf("configuring service %s: %w", name, err)
	}
	return nil
}

func (r *run) startService(ctx context.Context, name string) error {
	if err := r.note(name); err != nil {
		return err
	}
	r.lives.stopped(name)
	if err := r.host.Services.Start(ctx, name); err != nil {
		r.broken[name] = true
		return fmt.Errorf("starting service %s: %w", name, err)
	}
	if current, err := r.host.Services.Get(ctx, name); err == nil {
		r.lives.started(name, current.PID)
	}
	return nil
}
