package apply

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// maxResumes is how often a service of others is started again that does not start: what keeps it down is its
// owner's.
const maxResumes = 3

// Stop stops one of our services, if it is there, and notes what it takes along: a Pass starts that again.
func Stop(ctx context.Context, services winos.Services, stateFile *state.File, name string) error {
	if err := stateFile.Change(func() error { interrupt(ctx, services, stateFile, name); return nil }); err != nil {
		return FileProblem(err)
	}
	if err := services.Stop(ctx, name); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return err
	}
	return nil
}

// Restart starts one of our services anew, and then what its stop took along.
func (a *Applier) Restart(ctx context.Context, name string) error {
	if err := Stop(ctx, a.host.Services, a.state, name); err != nil {
		return err
	}
	if err := a.host.Services.Start(ctx, name); err != nil {
		return err
	}
	a.resume(ctx)
	return a.state.Save()
}

// interrupt notes the services of others that a stop takes along. One that can't be asked for them stops all the
// same.
func interrupt(ctx context.Context, services winos.Services, stateFile *state.File, name string) {
	log := logr.FromContextOrDiscard(ctx).WithValues("needs", name)
	names, err := services.Dependants(ctx, name)
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		log.Info("what depends on a service can't be listed", "detail", err.Error())
	}
	for _, other := range slices.Backward(names) {
		s, err := services.Get(ctx, other)
		// also one that a lost file named
		if stateFile.Installed(other) || err == nil && contract.IsManaged(s.Description) {
			continue
		}
		log.Info("a service of others is stopped with one that it needs", "service", other)
		stateFile.AddInterrupted(other)
	}
}

// resume starts services of others again that were stopped with one of ours, once all that they need runs. Until
// then they are kept in mind.
func (a *Applier) resume(ctx context.Context) {
	for again := true; again && ctx.Err() == nil; {
		again = false // one that starts may be what another needs
		a.state.Interrupted = slices.DeleteFunc(a.state.Interrupted, func(name string) bool {
			s, err := a.host.Services.Get(ctx, name)
			if errors.Is(err, winos.ErrNotFound) || err == nil && s.State == winos.ServiceRunning {
				return true
			}
			if err != nil || s.State != winos.ServiceStopped || !allRun(ctx, a.host.Services, s.Dependencies) {
				return false
			}
			log := logr.FromContextOrDiscard(ctx).WithValues("service", name)
			if err = a.host.Services.Start(ctx, name); err == nil {
				log.Info("started a service of others again")
				again = true
				return true
			}
			a.resumed[name]++
			given := a.resumed[name] >= maxResumes || s.NoAutoStart
			log.Info("a service of others does not start again", "detail", err.Error(), "left", given)
			return given
		})
	}
	maps.DeleteFunc(a.resumed, func(name string, _ int) bool { return !slices.Contains(a.state.Interrupted, name) })
}

// allRun says whether services run, groups of services aside.
func allRun(ctx context.Context, services winos.Services, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		s, err := services.Get(ctx, name)
		return !strings.HasPrefix(name, "+") && (err != nil || s.State != winos.ServiceRunning)
	})
}
