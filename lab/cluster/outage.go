package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// errNotRunning is returned if a component has ended or was stopped.
var errNotRunning = errors.New("it is not running")

// PauseAPIServer suspends the API server: connections stay open and requests hang, as if a network or a machine stalls.
// It is idempotent. It isn't available on Windows.
func (c *Cluster) PauseAPIServer() error {
	return c.withAPIServer("pausing", (*process).suspend)
}

// ResumeAPIServer resumes a paused API server. It is idempotent.
func (c *Cluster) ResumeAPIServer() error {
	return c.withAPIServer("resuming", (*process).resume)
}

// StopAPIServer kills the API server and returns when it has ended: connections break and new connections are refused.
// Its data stays. It is idempotent.
func (c *Cluster) StopAPIServer() error {
	err := c.withAPIServer("stopping", (*process).kill)
	if errors.Is(err, errNotRunning) {
		return nil
	}
	return err
}

// StartAPIServer starts a stopped API server at the same URL with the same data and identities, and returns when it is
// ready and the controllers work. If the API server is running, it returns an error. It also restarts the controller
// manager: in a real cluster, the controller manager exits when it can't renew its lease. Without the restart, its
// informers would back off for up to a minute after a long outage.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if err := c.startAPIServer(ctx); err != nil {
		return fmt.Errorf("starting the API server again: %w", err)
	}
	if err := c.endControllerManager(); err != nil {
		return fmt.Errorf("starting the controller manager again: %w", err)
	}
	if err := c.startControllerManager(ctx); err != nil {
		return fmt.Errorf("starting the controller manager again: %w", err)
	}
	return nil
}

// SetSigningDuration restarts the controller manager with another maximum lifetime of certificates. Existing
// certificates don't change.
func (c *Cluster) SetSigningDuration(ctx context.Context, longest time.Duration) error {
	args := slices.Clone(c.controllerManager.args)
	for i, arg := range args {
		if strings.HasPrefix(arg, signingDuration) {
			args[i] = signingDuration + longest.String()
		}
	}
	c.controllerManager.args = args
	if err := c.endControllerManager(); err != nil {
		return fmt.Errorf("starting the controller manager again: %w", err)
	}
	if err := c.startControllerManager(ctx); err != nil {
		return fmt.Errorf("starting the controller manager again: %w", err)
	}
	return nil
}

func (c *Cluster) endControllerManager() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running[controllerManagerName].kill()
}

func (c *Cluster) withAPIServer(doing string, act func(*process) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.running[c.apiServer.name]
	err := errNotRunning
	if p != nil && !p.hasEnded() {
		err = act(p)
	}
	if err != nil {
		return fmt.Errorf("%s the API server: %w", doing, err)
	}
	return nil
}
