package sim

import (
	"context"
	"fmt"
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

type programsFace struct{ face }

var _ winos.Programs = programsFace{}

// Run runs a program as a child process of the caller, and returns its exit code.
func (f programsFace) Run(ctx context.Context, exe string, args ...string) (int, error) {
	if err := f.look(ctx); err != nil {
		return 0, err
	}
	argv := append([]string{exe}, args...)
	code := lostCode
	child, err := f.m.start(context.WithoutCancel(ctx), launch{
		argv: argv, commandLine: joinCommandLine(argv), dir: systemDir, parent: f.p,
		ended: func(exitCode int) { code = exitCode },
	})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w: %w", exe, winos.ErrStartFailed, err)
	}
	stop := context.AfterFunc(ctx, func() { f.m.killTree(child) })
	defer stop()
	<-child.gone
	if ctx.Err() != nil {
		return 0, fmt.Errorf("waiting for %s: %w", exe, context.Cause(ctx))
	}
	return code, nil
}

// Kill implements winos.Programs.
func (f programsFace) Kill(ctx context.Context, pid uint32, runs func(exe string) bool) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	p, ok := f.m.processes.find(pid)
	if !ok || p == f.p || !runs(p.exe) {
		return nil
	}
	if f.m.knobs.isUnkillable(p.exe) {
		return fmt.Errorf("ending process %d: %w", pid, winos.ErrDenied)
	}
	f.m.kill(p)
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of process %d: %w", pid, context.Cause(ctx))
	}
}

// Processes implements winos.Programs.
func (f programsFace) Processes(ctx context.Context, path string) ([]winos.Process, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	var found []winos.Process
	for _, p := range f.m.processes.all() {
		if p != f.p && (fold(p.exe) == fold(path) || strings.HasPrefix(fold(p.exe), fold(path)+`\`)) {
			found = append(found, winos.Process{PID: p.pid, Exe: p.exe})
		}
	}
	return found, nil
}

// Lock implements winos.Programs. A lock belongs to a process, and Windows releases it when the process ends. The
// console is no process, so it can't hold a lock.
func (f programsFace) Lock(ctx context.Context, path string) (func() error, uint32, error) {
	if err := f.change(ctx); err != nil {
		return nil, 0, err
	}
	if f.m.knobs.takePendingLock() {
		return nil, 0, fmt.Errorf("locking %s: %w", path, winos.ErrDenied)
	}
	t := &f.m.processes
	t.mu.Lock()
	defer t.mu.Unlock()
	if holder, held := t.locks[fold(path)]; held {
		return nil, holder.pid, fmt.Errorf("locking %s: %w", path, winos.ErrInUse)
	}
	if f.p == nil {
		return func() error { return nil }, 0, nil
	}
	t.locks[fold(path)] = f.p
	return func() error {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.locks, fold(path))
		return nil
	}, 0, nil
}

// RemoveAtBoot implements winos.Programs.
func (f programsFace) RemoveAtBoot(path string) error {
	if err := f.p.alive(); err != nil {
		return err
	}
	return f.m.volume.removeAtBoot(path)
}

// RemoveLayer implements winos.Programs.
func (f programsFace) RemoveLayer(ctx context.Context, path string) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	return f.m.volume.removeLayer(path)
}
