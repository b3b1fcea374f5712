package apply

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// maxResumes is how often a service of others is started again that does not start: what keeps it down is its
// owner's.
const maxResumes = 3

// interrupt notes the services of others that a stop takes along. One that can't be asked for them stops all the
// same.
func (r *run) interrupt(ctx context.Context, name string) {
	names, err := r.host.Services.Dependants(ctx, name)
	if err != nil {
		r.log.Info("what depends on a service can't be listed", "service", name, "detail", err.Error())
	}
	for _, other := range slices.Backward(names) {
		if !r.state.Installed(other) {
			r.log.Info("a service of others is stopped with one that it needs", "service", other, "needs", name)
			r.state.AddInterrupted(other)
		}
	}
}

// resume starts services of others again that were stopped with one of ours, once all that they need runs. Until
// then they are kept in mind.
func (k *Applier) resume(ctx context.Context) {
	for again := true; again && ctx.Err() == nil; {
		again = false // one that starts may be what another needs
		k.state.Interrupted = slices.DeleteFunc(k.state.Interrupted, func(name string) bool {
			s, err := k.host.Services.Get(ctx, name)
			if errors.Is(err, winos.ErrNotFound) || err == nil && s.State == winos.ServiceRunning {
				return true
			}
			if err != nil || s.State != winos.ServiceStopped || !allRun(ctx, k.host.Services, s.Dependencies) {
				return false
			}
			log := logr.FromContextOrDiscard(ctx).WithValues("service", name)
			if err = k.host.Services.Start(ctx, name); err == nil {
				log.Info("started a service of others again")
				delete(k.resumed, name)
				again = true
				return true
			}
			k.resumed[name]++
			given := k.resumed[name] >= maxResumes || s.NoAutoStart
			log.Info("a service of others does not start again", "detail", err.Error(), "left", given)
			return given
		})
	}
}

// allRun says whether services run, groups of services aside.
func allRun(ctx context.Context, services winos.Services, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool {
		s, err := services.Get(ctx, name)
		return !strings.HasPrefix(name, "+") && (err != nil || s.State != winos.ServiceRunning)
	})
}
