package apply

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// observe reads the state of everything that is desired or in the state file. It skips the content of unchanged files.
func (a *Applier) observe(ctx context.Context, want plan.Desired) (plan.Observed, error) {
	have, err := a.look(ctx, want, func(path string) (string, winos.Access, error) {
		return a.digests.of(ctx, path)
	})
	if err != nil {
		return have, err
	}
	a.staleKubeconfigs(ctx, want, &have)
	for _, s := range want.Services {
		if s.Waiting == nil {
			a.histories.saw(s.Name, have.Services[s.Name])
		}
	}
	return have, nil
}

// QuickCheck reports whether a pass is needed because the host no longer matches the last Apply. It checks services,
// the sizes and times of files, the environment, certificates, routes and the node's address. It adds missing routes,
// but reads no file content and starts nothing. It ignores conflicts, unknown values, and held steps: see held.
func (a *Applier) QuickCheck(ctx context.Context) bool {
	have, err := a.lookAgain(ctx)
	if err != nil {
		return true
	}
	if a.isMoved(ctx) || a.isRewritten() {
		return true
	}
	for _, s := range a.last.Services {
		if s.Waiting == nil && a.histories.ended(s.Name, have.Services[s.Name]) && !a.histories.held(s.Name, s.Inputs) {
			return true
		}
	}
	for _, p := range a.routes(ctx) {
		logr.FromContextOrDiscard(ctx).V(1).Info("a route can't be set", "detail", p.Detail)
		return true
	}
	return len(plan.Diff(a.last, have, a.state.Changes).Steps) > 0
}

// Differences returns the steps that QuickCheck would find, including held steps: see held. It changes nothing.
func (a *Applier) Differences(ctx context.Context) []plan.Step {
	have, err := a.lookAgain(ctx)
	if err != nil {
		return nil
	}
	have.Held = nil
	return plan.Diff(a.last, have, a.state.Changes).Steps
}

// lookAgain observes the last desired state without reading files.
func (a *Applier) lookAgain(ctx context.Context) (plan.Observed, error) {
	return a.look(ctx, a.last, func(path string) (string, winos.Access, error) {
		digest, access := a.digests.cached(path)
		return digest, access, nil
	})
}

// look observes everything that is desired or in the state file. `digest` returns a file's digest and access rights.
func (a *Applier) look(ctx context.Context, want plan.Desired,
	digest func(path string) (string, winos.Access, error)) (plan.Observed, error) {
	have := plan.Observed{Services: map[string]winos.Service{}, Sane: maps.Clone(a.sane), Digests: map[string]string{},
		Unreadable: map[string]*contract.Problem{}, Held: a.held, Absent: a.absent(want)}
	var err error
	if have.Environment, err = a.host.Environment.All(ctx); err != nil {
		return have, fmt.Errorf("reading the system environment: %w", err)
	}
	if err = a.services(ctx, want, have.Services); err != nil {
		return have, err
	}
	if have.Roots, err = a.roots(ctx, want); err != nil {
		logr.FromContextOrDiscard(ctx).Info("the root store can't be read", "detail", err.Error())
	}
	for _, f := range want.Files {
		d, access, err := digest(f.Path)
		if err != nil && ctx.Err() == nil {
			have.Unreadable[f.Path] = FileProblem(err)
			continue
		}
		if err != nil {
			return have, err
		}
		if d == "" {
			continue
		}
		have.Digests[f.Path] = d
		if f.Access == winos.AccessAdministrators && access != f.Access && d == f.Digest {
			have.Loose = append(have.Loose, f.Path) // a file with different content gets its rights when it is written
		}
	}
	a.private(&have)
	return have, nil
}

func (a *Applier) absent(want plan.Desired) map[string]bool {
	all := map[string]bool{}
	for _, s := range want.Services {
		if s.RequiresFile == "" {
			continue
		}
		if _, err := a.host.Files.Stat(s.RequiresFile); errors.Is(err, fs.ErrNotExist) {
			all[s.RequiresFile] = true
		}
	}
	return all
}

// `private` adds to have.Loose those of our private files and directories that other users may access.
func (a *Applier) private(have *plan.Observed) {
	for _, path := range state.Private(a.state) {
		info, err := a.host.Files.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			have.Unreadable[path] = FileProblem(err)
			continue
		}
		if info.Access != winos.AccessAdministrators && !slices.Contains(have.Loose, path) {
			have.Loose = append(have.Loose, path)
		}
	}
}

// roots returns the fingerprints in the root store. It doesn't read the store if we want no certificate and have added
// none. If the store can't be read, only the steps on certificates are skipped.
func (a *Applier) roots(ctx context.Context, want plan.Desired) (map[string]bool, error) {
	found := map[string]bool{}
	if len(want.Roots)+len(a.state.Certificates) == 0 {
		return found, nil
	}
	all, err := a.host.Trust.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, der := range all {
		found[plan.Fingerprint(der)] = true
	}
	return found, nil
}

func (a *Applier) services(ctx context.Context, want plan.Desired, into map[string]winos.Service) error {
	names := slices.Collect(maps.Keys(a.state.Services))
	for _, s := range want.Services {
		names = append(names, s.Name)
	}
	for _, name := range names {
		service, err := a.host.Services.Get(ctx, name)
		if errors.Is(err, winos.ErrNotFound) {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking at service %s: %w", name, err)
		}
		into[name] = service
	}
	for _, s := range want.Services {
		if current, ok := into[s.Name]; ok && s.Waiting == nil && plan.Equal(current.ServiceConfig, s.ServiceConfig) {
			a.sane[s.Name] = current.PID
		}
	}
	return nil
}

// `held` reports whether a step must be skipped for now: another program undoes the step every time, or the step starts
// a service that is in a crash loop.
func (a *Applier) held(step plan.Step) bool {
	if step.Kind == plan.StartService {
		return a.histories.held(step.Name, step.Want)
	}
	return a.repeats.held(step)
}
