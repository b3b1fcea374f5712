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

// maxResumes limits our attempts to start another vendor's service. If they fail, the service's owner must repair it.
const maxResumes = 3

// Stop stops a managed service, if it exists. The next pass restarts other vendors' services that stopped with it.
func Stop(ctx context.Context, services winos.Services, stateFile *state.File, name string) error {
	if err := stateFile.Change(func() error { interrupt(ctx, services, stateFile, name); return nil }); err != nil {
		return FileProblem(err)
	}
	if err := services.Stop(ctx, name); err != nil && !errors.Is(err, winos.ErrNotFound) {
		return err
	}
	return nil
}

// Restart restarts one of our services, and then other vendors' services that stopped with it.
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

// interrupt records the services of other vendors that depend on a service and therefore stop with it. If these
// services can't be listed, interrupt only logs the error, so that the service is stopped anyway.
func interrupt(ctx context.Context, services winos.Services, stateFile *state.File, name string) {
	log := logr.FromContextOrDiscard(ctx).WithValues("needs", name)
	names, err := services.Dependants(ctx, name)
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		log.Info("the dependants of a service can't be listed", "detail", err.Error())
	}
	for _, other := range slices.Backward(names) {
		s, err := services.Get(ctx, other)
		// Skip managed services. The description identifies a managed service even if the state file was lost.
		if stateFile.Installed(other) || err == nil && contract.IsManaged(s.Description) {
			continue
		}
		log.Info("stopping a service of another vendor, because it depends on a service that stops", "service", other)
		stateFile.Interrupted.Add(other)
	}
}

// resume starts the services of other vendors that were stopped together with ours. If the dependencies of such a
// service don't run yet, the service stays recorded for the next pass.
func (a *Applier) resume(ctx context.Context) {
	for again := true; again && ctx.Err() == nil; {
		again = false // set to true by each start, because the started service may be a dependency of another service
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
				log.Info("started a service of another vendor again")
				again = true
				return true
			}
			a.resumed[name]++
			given := a.resumed[name] >= maxResumes || s.NoAutoStart
			log.Info("a service of another vendor does not start again", "detail", err.Error(), "left", given)
			return given
		})
	}
	maps.DeleteFunc(a.resumed, func(name string, _ int) bool { return !slices.Contains(a.state.Interrupted, name) })
}

// allRun reports whether all services in `names` run. It ignores service groups, whose names begin with "+".
func allRun(ctx context.Context, services winos.Services, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		s, err := services.Get(ctx, name)
		return !strings.HasPrefix(name, "+") && (err != nil || s.State != winos.ServiceRunning)
	})
}
