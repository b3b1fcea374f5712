package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
)

// The names of the components are used in the names of their logs and in errors.
const (
	etcdName              = "etcd"
	apiServerName         = "kube-apiserver"
	controllerManagerName = "controller-manager"
	schedulerName         = "kube-scheduler"
)

// component describes how to start a program of the control plane.
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
	// ended is closed when the process has ended. err is valid after that.
	ended chan struct{}
	err   error
	// asked is set before the lab itself ends the process.
	asked atomic.Bool
}

// start runs a component as a child that ends with the calling process. The child gets a minimal environment, because
// etcd reads settings from ETCD_* variables. It also gets its own process group, so that Ctrl-C in a terminal reaches
// only the lab, which then ends the components in order.
func start(ctx context.Context, c component) (*process, error) {
	output, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the log of %s: %w", c.name, err)
	}
	defer output.Close()
	// The process isn't bound to ctx, because ctx limits only the start of the cluster.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.path, c.args...)
	cmd.Dir = c.dir
	cmd.Stdout, cmd.Stderr = output, output
	// Labs typically run on machines with few processors and enough memory, so the garbage collector runs less often.
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

// kill ends the process immediately and returns when it has ended. It is idempotent. There is no state to save: a
// control plane survives being killed, and the data of the lab is deleted anyway.
func (p *process) kill() error {
	p.asked.Store(true)
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending %s: %w", p.name, err)
	}
	<-p.ended
	return nil
}

// hasEnded reports whether the process has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}
