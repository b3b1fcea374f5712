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

// observe looks at what the target and the state file name, and reads files where that is needed.
func (k *Applier) observe(ctx context.Context, want plan.Desired) (plan.Observed, error) {
	have, err := k.look(ctx, want, func(path string) (string, winos.Access, error) {
		return k.digests.of(ctx, path, &k.waits)
	})
	if err != nil {
		return have, err
	}
	k.behind(ctx, want, &have)
	for _, s := range want.Services {
		if s.Waiting == nil {
			k.lives.saw(s.Name, have.Services[s.Name])
		}
	}
	return have, nil
}

// Glance says whether something of the last pass's target is visibly no longer so. It asks for the
// states of services, the sizes and times of files, the environment, certificates, routes and the node's address; it
// reads no file and starts nothing. What a pass could not do, waits for, or holds back does not
// count.
func (k *Applier) Glance(ctx context.Context) bool {
	have, err := k.lookAgain(ctx)
	if err != nil {
		return true
	}
	if k.isMoved(ctx) || k.isRewritten() {
		return true
	}
	for _, s := range k.last.Services {
		if s.Waiting == nil && k.lives.ended(s.Name, have.Services[s.Name]) && !k.lives.held(s.Name, s.Inputs) {
			return true
		}
	}
	for _, p := range k.routes(ctx) {
		logr.FromContextOrDiscard(ctx).V(1).Info("a route can't be set", "detail", p.Detail)
		return true
	}
	return len(plan.Diff(k.last, have, k.state.State).Steps) > 0
}

// Differences are the steps that would be taken now for the last pass's target, as far as Glance sees,
// also those that are held back. It changes nothing.
func (k *Applier) Differences(ctx context.Context) []plan.Step {
	have, err := k.lookAgain(ctx)
	if err != nil {
		return nil
	}
	have.Held = nil
	return plan.Diff(k.last, have, k.state.State).Steps
}

// lookAgain looks for the last pass's target, and reads no file.
func (k *Applier) lookAgain(ctx context.Context) (plan.Observed, error) {
	return k.look(ctx, k.last, func(path string) (string, winos.Access, error) {
		digest, access := k.digests.glance(path)
		return digest, access, nil
	})
}

// look asks the host for what the target and the state file name. digest says what a file holds.
func (k *Applier) look(ctx context.Context, want plan.Desired,
	digest func(path string) (string, winos.Access, error)) (plan.Observed, error) {
	have := plan.Observed{Services: map[string]winos.Service{}, Sane: maps.Clone(k.sane), Digests: map[string]string{},
		Unreadable: map[string]*contract.Problem{}, Held: k.held, Absent: k.absent(want)}
	var err error
	if have.Environment, err = k.host.Environment.All(ctx); err != nil {
		return have, fmt.Errorf("reading the system environment: %w", err)
	}
	if err = k.services(ctx, want, have.Services); err != nil {
		return have, err
	}
	if have.Roots, err = k.roots(ctx, want); err != nil {
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
			have.Loose = append(have.Loose, f.Path) // one with another content is written anew, with its rights
		}
	}
	k.private(&have)
	return have, nil
}

// absent are the files that services require and that are not there.
func (k *Applier) absent(want plan.Desired) map[string]bool {
	all := map[string]bool{}
	for _, s := range want.Services {
		if s.RequiresFile == "" {
			continue
		}
		if _, err := k.host.Files.Stat(s.RequiresFile); errors.Is(err, fs.ErrNotExist) {
			all[s.RequiresFile] = true
		}
	}
	return all
}

// private finds out which of the files and directories that are nobody else's others may open.
func (k *Applier) private(have *plan.Observed) {
	for _, path := range state.Private(k.state) {
		info, err := k.host.Files.Stat(path)
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

// roots are the fingerprints in the root store, as far as anybody wants to know; nil with an error.
// One store that can't be read keeps nothing else back.
func (k *Applier) roots(ctx context.Context, want plan.Desired) (map[string]bool, error) {
	found := map[string]bool{}
	if len(want.Roots)+len(k.state.Certificates) == 0 {
		return found, nil
	}
	all, err := k.host.Trust.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, der := range all {
		found[plan.Fingerprint(der)] = true
	}
	return found, nil
}

func (k *Applier) services(ctx context.Context, want plan.Desired, into map[string]winos.Service) error {
	names := slices.Collect(maps.Keys(k.state.Services))
	for _, s := range want.Services {
		names = append(names, s.Name)
	}
	for _, name := range names {
		service, err := k.host.Services.Get(ctx, name)
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
			k.sane[s.Name] = current.PID
		}
	}
	return nil
}

// held says whether a step is to be left for now, because somebody undoes it or because a service
// does not stay up.
func (k *Applier) held(step plan.Step) bool {
	if step.Kind == plan.StartService {
		return k.lives.held(step.Name, step.Want)
	}
	return k.repeats.held(step) || k.kept.held(step)
}
