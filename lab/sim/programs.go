package sim

import (
	"context"
	"fmt"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

type programsFace struct{ face }

var _ winos.Programs = programsFace{}

// Run starts a child of the caller.
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

// Kill is winos.Programs.
func (f programsFace) Kill(ctx context.Context, pid uint32) error {
	if err := f.change(ctx); err != nil {
		return err
	}
	p, ok := f.m.processes.find(pid)
	if !ok {
		return nil
	}
	f.m.kill(p)
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the end of process %d: %w", pid, context.Cause(ctx))
	}
}
