package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
)

// The components' names, as in their logs' file names and in errors.
const (
	etcdName              = "etcd"
	apiServerName         = "kube-apiserver"
	controllerManagerName = "controller-manager"
	schedulerName         = "kube-scheduler"
)

// component is one program of the control plane, as it is to be started.
type component struct {
	name string
	path string
	dir  string // working directory
	log  string // file that its output is appended to
	args []string
}

// process is a running component.
type process struct {
	component
	cmd *exec.Cmd
	// ended is closed when the process has ended; err may be read after that.
	ended chan struct{}
	err   error
	// asked is set before the lab itself ends the process.
	asked atomic.Bool
}

// start runs a component as a child that can't outlive the calling process. The
// child gets an environment of its own, since etcd takes settings from ETCD_*
// variables, and a process group of its own, so that Ctrl-C in a terminal
// reaches the lab and not, at the same moment, what the lab wants to end in order.
func start(ctx context.Context, c component) (*process, error) {
	output, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.name, err)
	}
	defer output.Close()
	// It outlives ctx, which bounds the start of the cluster only.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.path, c.args...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = output, output
	// Processors are scarcer than memory where a lab runs: its garbage may grow to thrice what is
	// in use.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "TMPDIR=" + c.dir, "GOGC=300"}
	p := &process{component: c, cmd: cmd, ended: make(chan struct{})}
	wait, err := StartChild(cmd)
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.name, err)
	}
	go func() {
		p.err = wait()
		close(p.ended)
	}()
	return p, nil
}

// kill ends the process at once and returns when it is gone. A repeated call
// does nothing. There is nothing to save: a control plane survives being killed,
// and the lab's data goes anyway.
func (p *process) kill() error {
	p.asked.Store(true)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending %s: %w", p.name, err)
	}
	<-p.ended
	return nil
}

// hasEnded reports whether the process is gone.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
