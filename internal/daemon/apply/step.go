package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// `do` takes a step. If the step fails, `do` returns the error, and the reason for the problem to report. If the daemon
// crashes before the state file is saved at the end of the pass, the next pass repeats removals. This is harmless.
func (r *run) do(ctx context.Context, step plan.Step) (contract.Reason, error) {
	switch step.Kind {
	case plan.Restrict:
		return contract.ReasonFileFailed, r.restrict(step.Name)
	case plan.AddRoot:
		return contract.ReasonTrustFailed, r.addRoot(ctx, step.Name)
	case plan.RemoveRoot:
		return contract.ReasonTrustFailed, r.removeRoot(ctx, step.Name)
	case plan.RemoveService:
		return contract.ReasonServiceFailed, r.removeService(ctx, step.Name)
	case plan.SetVariable:
		return contract.ReasonEnvironmentFailed, r.setVariable(ctx, step.Name, r.want.Environment[step.Name])
	case plan.UnsetVariable:
		return contract.ReasonEnvironmentFailed, r.unsetVariable(ctx, step.Name)
	case plan.PutBack:
		return contract.ReasonEnvironmentFailed, PutBack(ctx, r.host, r.state, strings.ToLower(step.Name))
	case plan.WriteFile:
		return contract.ReasonFileFailed, r.writeFile(ctx, step.Name)
	case plan.Point:
		return contract.ReasonFileFailed, r.point(step.Name)
	case plan.RemoveFile:
		return contract.ReasonFileFailed, r.removeFile(ctx, step.Name)
	case plan.RemoveNetwork:
		return contract.ReasonNetworkNotRemoved, r.removeNetwork(ctx, step.Name)
	case plan.StopService:
		return contract.ReasonServiceFailed, r.stopService(ctx, step.Name)
	case plan.SetService:
		return contract.ReasonServiceFailed, r.setService(ctx, step.Name)
	case plan.StartService:
		return contract.ReasonServiceFailed, r.startService(ctx, step.Name)
	}
	return contract.ReasonInternal, fmt.Errorf("step %q is not known", step.Kind)
}

func (r *run) restrict(path string) error {
	r.digests.drop(path)
	if err := r.host.Files.Restrict(path); err != nil {
		return fmt.Errorf("restricting access to %s: %w", path, err)
	}
	return nil
}

func (r *run) addRoot(ctx context.Context, name string) error {
	if err := r.host.Trust.Add(ctx, r.want.Roots[name]); err != nil {
		r.state.RemoveCertificate(r.want.Roots[name])
		return fmt.Errorf("adding the CA with SHA-256 %.16s: %w", name, err)
	}
	return nil
}

// removeRoot removes a CA that we added. If Windows denies the removal, something else, such as a group policy, has
// added the same CA. Then removeRoot leaves the CA in the store and only deletes our record.
func (r *run) removeRoot(ctx context.Context, name string) error {
	for _, der := range slices.Clone(r.state.Certificates) {
		if plan.Fingerprint(der) != name {
			continue
		}
		err := r.host.Trust.Remove(ctx, der)
		if errors.Is(err, winos.ErrDenied) {
			r.log.Info("a CA stays, because something else adds it as well", "sha256", name)
		} else if err != nil {
			return fmt.Errorf("removing the CA with SHA-256 %.16s: %w", name, err)
		}
		r.state.RemoveCertificate(der)
	}
	return nil
}

func (r *run) removeService(ctx context.Context, name string) error {
	if err := RemoveService(ctx, r.host.Services, name); err != nil {
		return fmt.Errorf("removing service %s: %w", name, err)
	}
	r.histories.stopped(name)
	delete(r.state.Services, name)
	return nil
}

// RemoveService stops and deletes a service. If another program, such as the Services console, has the service open,
// RemoveService doesn't wait for that program. Then the service can no longer be started. Windows deletes the service
// when that program closes it, or at the next boot. Until its deletion, the service can't be installed again. If the
// service doesn't exist, RemoveService does nothing.
func RemoveService(ctx context.Context, services winos.Services, name string) error {
	err := services.Stop(ctx, name)
	if err == nil {
		err = services.DeleteAtStop(ctx, name)
	}
	if errors.Is(err, winos.ErrNotFound) {
		return nil
	}
	return err
}

func (r *run) removeNetwork(ctx context.Context, name string) error {
	if err := r.host.Network.RemoveHNSNetwork(ctx, name); err != nil {
		return fmt.Errorf("removing network %s: %w", name, err)
	}
	r.state.Networks.Remove(name)
	return nil
}

func (r *run) setVariable(ctx context.Context, name, value string) error {
	if err := r.host.Environment.Set(ctx, name, value); err != nil {
		return fmt.Errorf("setting environment variable %s: %w", name, err)
	}
	return nil
}

func (r *run) unsetVariable(ctx context.Context, name string) error {
	if err := r.host.Environment.Unset(ctx, name); err != nil {
		return fmt.Errorf("removing environment variable %s: %w", name, err)
	}
	return nil
}

// PutBack restores a variable that we changed, and removes it from the state file. key is the name in lower case.
func PutBack(ctx context.Context, host winos.Host, stateFile *state.File, key string) error {
	v, ours := stateFile.Environment[key]
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
		return fmt.Errorf("restoring environment variable %s: %w", v.Name, err)
	}
	delete(stateFile.Environment, key)
	return stateFile.Save()
}

func (r *run) writeFile(ctx context.Context, path string) error {
	err := CommitFile(ctx, r.host.Files, path, r.aside[path])
	r.digests.drop(path)
	if err != nil {
		for _, name := range r.file(path).Services {
			r.broken[name] = true
		}
		return FileProblem(fmt.Errorf("replacing %s: %w", path, err))
	}
	r.state.Staged.Remove(path)
	return nil
}

// removeFile deletes a file. It also deletes the file's directory if we created the directory, if the directory is
// empty, and if state.Directories doesn't list it.
func (r *run) removeFile(ctx context.Context, path string) error {
	if err := winos.UntilClosed(ctx.Done(), func() error { return r.host.Files.Remove(path) }); err != nil {
		return fmt.Errorf("removing %s: %w", path, err)
	}
	r.state.Files.Remove(path)
	dir := state.Parent(path)
	standing := slices.ContainsFunc(state.Directories(),
		func(d string) bool { return strings.EqualFold(d, dir) || contract.Within(dir, d) })
	if contract.Within(contract.DirK, dir) && r.state.Directories.Has(dir) && !standing {
		if entries, err := r.host.Files.List(dir); err == nil && len(entries) == 0 && r.host.Files.Remove(dir) == nil {
			r.state.Directories.Remove(dir)
		}
	}
	return nil
}

// note records the inputs of a service before the service starts, and the ID of the process with the previous inputs.
// If the state file can't be written, the service starts anyway. It may later be restarted without need.
func (r *run) note(name string) {
	r.state.SetService(name, state.Start{Inputs: r.service(name).Inputs, NotPID: r.have.Services[name].PID})
	if err := r.state.Save(); err != nil {
		r.log.Info("a start can't be recorded", "service", name, "detail", err.Error())
	}
}

func (r *run) stopService(ctx context.Context, name string) error {
	r.histories.stopped(name)
	if err := r.host.Services.Stop(ctx, name); err != nil {
		r.broken[name] = true
		return err
	}
	return nil
}

func (r *run) setService(ctx context.Context, name string) error {
	if err := r.host.Services.Apply(ctx, r.service(name).ServiceConfig); err != nil {
		r.broken[name] = true
		return fmt.Errorf("configuring service %s: %w", name, err)
	}
	return nil
}

func (r *run) startService(ctx context.Context, name string) error {
	r.note(name)
	r.histories.stopped(name)
	if err := r.host.Services.Start(ctx, name); err != nil {
		r.broken[name] = true
		return err
	}
	if current, err := r.host.Services.Get(ctx, name); err == nil {
		r.histories.started(name, current.PID, r.service(name).Inputs)
		r.sane[name] = current.PID
	}
	return nil
}
