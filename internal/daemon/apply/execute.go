package apply

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// run executes the steps of one pass in three phases. First it writes all new content to temporary files. Then it
// records all changes in the state file, in one write. Then it makes the changes, which need no more disk space. So a
// full disk is noticed before anything has changed.
type run struct {
	*Applier
	want plan.Desired
	have plan.Observed
	// `whole` is Request.Whole.
	whole bool
	// `broken` contains the services that can't start, because a step on the service, its files or a dependency failed.
	broken map[string]bool
	// aside maps the path of a running program to its new name.
	aside  map[string]string
	report *Report
	log    logr.Logger
}

func (r *run) take(ctx context.Context, steps []plan.Step) {
	r.forgetStaged()
	starts := maps.Clone(r.state.Services)
	steps, ok := r.stage(ctx, steps)
	if ok {
		steps, ok = r.declare(ctx, steps)
	}
	for ok && len(steps) > 0 {
		if ctx.Err() != nil {
			r.report.failed(contract.NewProblem(contract.ReasonInProgress, "stopped before everything was done"))
			return // the next pass deletes the staged files
		}
		ok = r.step(ctx, steps[0]) || !r.whole
		steps = steps[1:]
	}
	r.report.Left = r.report.Left || len(steps) > 0
	r.rememberStarts(ctx, starts)
	r.forgetStaged()
}

// forgetStaged deletes unused temporary files, including files of an interrupted pass.
func (r *run) forgetStaged() {
	r.state.Staged = slices.DeleteFunc(r.state.Staged, func(path string) bool {
		err := UnstageFile(r.host.Files, path)
		if err != nil {
			r.log.Info("a file that was prepared can't be removed", "path", path, "detail", err.Error())
		}
		return err == nil
	})
}

// stage writes the new content of files to temporary files. The result `left` lists the steps that can still be taken.
// It omits files that can't be staged. If `ok` is false, no step may be taken.
func (r *run) stage(ctx context.Context, steps []plan.Step) (left []plan.Step, ok bool) {
	writes := slices.DeleteFunc(slices.Clone(steps), func(s plan.Step) bool { return s.Kind != plan.WriteFile })
	if len(writes) == 0 {
		return steps, true
	}
	var dirs []string
	for _, s := range writes {
		r.state.Staged.Add(s.Name)
		dirs = append(dirs, state.Parent(s.Name))
	}
	// Ensure also saves the names of the staged files, before it creates the directories.
	if err := state.Ensure(r.host.Files, r.state, dirs...); err != nil {
		r.refuse(writes, FileProblem(err), "") // the problem names the directory
		return without(steps, writes), !r.whole
	}
	var failed []plan.Step
	for _, s := range writes {
		if err := r.stageFile(ctx, r.file(s.Name)); err != nil {
			r.refuse([]plan.Step{s}, FileProblem(err), s.Name)
			failed = append(failed, s)
			if r.whole {
				return without(steps, failed), false
			}
		}
	}
	return without(steps, failed), true
}

// refuse reports a problem that prevents steps on files, and marks the services that read those files as broken. The
// parameter `about` is the object of the problem, or empty.
func (r *run) refuse(steps []plan.Step, problem *contract.Problem, about string) {
	r.fail(problem)
	r.breaks(problem, about)
	for _, s := range steps {
		r.log.Info("a step failed", "step", s.Kind, "name", s.Name, "reason", problem.Reason, "detail", problem.Detail)
		for _, name := range r.file(s.Name).Services {
			r.broken[name] = true
		}
	}
}

func without(steps, some []plan.Step) []plan.Step {
	return slices.DeleteFunc(slices.Clone(steps), func(s plan.Step) bool { return slices.Contains(some, s) })
}

func (r *run) stageFile(ctx context.Context, f plan.File) (err error) {
	content := io.NopCloser(bytes.NewReader(f.Content))
	if f.Content == nil {
		err = winos.UntilClosed(ctx.Done(), func() error { content, err = r.store.Open(f.Digest); return err })
		if err != nil {
			return err
		}
	}
	err = errors.Join(StageFile(ctx, r.host.Files, f.Path,
		Content{Digest: f.Digest, Content: content, Access: f.Access}), content.Close())
	if errors.Is(err, ErrDigest) {
		return errors.Join(err, r.store.Drop(f.Digest))
	}
	return err
}

// declare records the steps in the state file. If the file can't be written, declare returns only the steps that need
// no record: starts of services that are down.
func (r *run) declare(ctx context.Context, steps []plan.Step) (left []plan.Step, ok bool) {
	err := r.state.Change(func() (err error) {
		for _, s := range steps {
			switch s.Kind {
			case plan.StopService, plan.RemoveService:
				interrupt(ctx, r.host.Services, r.state, s.Name)
			case plan.WriteFile:
				err = errors.Join(err, r.declareFile(s.Name))
			case plan.Point:
				forgetStarts(r.state, r.want.Kubeconfig(s.Name).Services)
			case plan.SetVariable, plan.UnsetVariable:
				r.touch(s.Name)
				r.state.NoteVariable(s.Name, r.bootID(ctx), s.Kind == plan.SetVariable)
			case plan.AddRoot:
				r.state.AddCertificate(r.want.Roots[s.Name])
			case plan.SetService:
				// Record the service before it is created, so that the state file lists all our services.
				if _, ours := r.state.Services[s.Name]; !ours {
					r.state.SetService(s.Name, state.Start{})
				}
			}
		}
		return err
	})
	if err == nil {
		return steps, true
	}
	problem := FileProblem(err)
	r.log.Info("the planned steps can't be saved", "reason", problem.Reason, "detail", problem.Detail)
	r.report.Left = true
	r.refuse(slices.DeleteFunc(slices.Clone(steps), func(s plan.Step) bool { return s.Kind != plan.WriteFile }),
		problem, "") // the object is the state file, or a program that can't be moved aside
	down := func(s plan.Step) bool { return s.Kind == plan.StartService && !r.broken[s.Name] }
	stopped := slices.ContainsFunc(steps, func(s plan.Step) bool { return s.Kind == plan.StopService })
	return slices.DeleteFunc(slices.Clone(steps), func(s plan.Step) bool { return stopped || !down(s) }), !r.whole
}

func (r *run) declareFile(path string) error {
	r.state.Files.Add(path)
	forgetStarts(r.state, r.file(path).Services)
	if !strings.HasSuffix(strings.ToLower(path), ".exe") {
		return nil
	}
	aside, err := AsideName(r.host.Files, path)
	if err != nil {
		return err
	}
	r.aside[path] = aside
	r.state.Aside.Add(aside)
	return nil
}

// forgetStarts deletes the recorded starts of services. Call forgetStarts before you change a file that these services
// read, because a process that starts from now on may read the new content.
func forgetStarts(file *state.File, services []string) {
	for _, name := range services {
		if _, ours := file.Services[name]; ours {
			file.SetService(name, state.Start{})
		}
	}
}

// rememberStarts restores the recorded starts that `declare` deleted. It skips services that have restarted or whose
// files were replaced. It is called after a pass that ended early.
func (r *run) rememberStarts(ctx context.Context, starts map[string]state.Start) {
	var replaced []string
	for _, s := range r.report.Steps {
		switch s.Kind {
		case plan.WriteFile:
			replaced = append(replaced, r.file(s.Name).Services...)
		case plan.Point:
			replaced = append(replaced, r.want.Kubeconfig(s.Name).Services...)
		}
	}
	for name, start := range starts {
		if now, ours := r.state.Services[name]; !ours || now == start || slices.Contains(replaced, name) {
			continue
		}
		current, err := r.host.Services.Get(ctx, name)
		if err == nil && current.PID != 0 && current.PID == r.have.Services[name].PID {
			r.state.SetService(name, start)
		}
	}
}

// touch records a variable's value before our change. Windows ignores the case of names.
func (r *run) touch(name string) {
	var before *string
	for other, value := range r.have.Environment {
		if strings.EqualFold(other, name) {
			before = &value
		}
	}
	r.state.TouchVariable(name, before)
}

// step executes one step and records the result. If a step is about a broken service, it is skipped. The result `ok` is
// false if the step failed and the failure may keep programs from running correctly.
func (r *run) step(ctx context.Context, step plan.Step) (ok bool) {
	beside := false
	switch step.Kind {
	case plan.StopService, plan.SetService, plan.StartService:
		if r.needsBroken(step.Name) {
			r.report.Left = true
			return true
		}
	case plan.Restrict, plan.AddRoot, plan.RemoveRoot, plan.RemoveFile:
		beside = true // programs run correctly even if such a step fails
	}
	r.report.Changed = r.report.Changed || !beside || step.Kind == plan.RemoveFile
	reason, err := r.do(ctx, step)
	if err != nil {
		problem := contract.ProblemOf(reason, err)
		r.log.Info("a step failed", "step", step.Kind, "name", step.Name, "reason", problem.Reason, "detail",
			problem.Detail)
		r.fail(problem)
		if !beside {
			r.breaks(problem, step.Name)
		}
		return beside
	}
	r.log.Info("took a step", "step", step.Kind, "name", step.Name, "why", step.Why)
	r.report.Steps = append(r.report.Steps, step)
	r.repeats.took(step)
	return true
}

func (r *run) fail(problem *contract.Problem) {
	if !slices.ContainsFunc(r.report.Failed, func(other *contract.Problem) bool { return *other == *problem }) {
		r.report.failed(problem)
	}
}

// `breaks` records that a problem may keep programs from running correctly.
func (r *run) breaks(problem *contract.Problem, about string) {
	r.report.Broken = append(r.report.Broken, state.Fault{Problem: *problem, About: about})
}

// needsBroken reports whether a service, or a dependency of it, is broken. If so, it marks the service as broken.
func (r *run) needsBroken(name string) bool {
	if !r.broken[name] {
		s := r.service(name)
		r.broken[name] = slices.ContainsFunc(s.Dependencies, func(d string) bool { return r.broken[d] })
	}
	return r.broken[name]
}

func (r *run) service(name string) plan.Service {
	return r.want.Services[slices.IndexFunc(r.want.Services, func(s plan.Service) bool { return s.Name == name })]
}

func (r *run) file(path string) plan.File {
	return r.want.Files[slices.IndexFunc(r.want.Files, func(f plan.File) bool { return f.Path == path })]
}
