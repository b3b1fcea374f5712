package cluster

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/lab/port"
)

// BuildScheduler returns the path of kube-scheduler. If it isn't in the cache, BuildScheduler builds it.
func BuildScheduler(ctx context.Context, options BuildOptions) (path string, err error) {
	return BuildExtra(ctx, options, schedulerName)
}

// StartScheduler starts kube-scheduler, and builds it if it isn't in the cache. It returns when kube-scheduler is
// healthy. kube-scheduler runs until Stop or StopScheduler. Start doesn't start it, because only tests of pod placement
// need it.
func (c *Cluster) StartScheduler(ctx context.Context, progress io.Writer) error {
	path, err := BuildScheduler(ctx, BuildOptions{Progress: progress})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, defaultStartTimeout)
	defer cancel()
	reserved, err := c.reserve(ctx)
	if err != nil {
		return err
	}
	identity, err := c.ca.config(c.URL, "system:kube-scheduler", mastersGroup)
	if err != nil {
		return err
	}
	kubeconfig, err := writeKubeconfig(c.workspace, "scheduler.kubeconfig", identity)
	if err != nil {
		return err
	}
	p, err := c.launch(ctx, c.schedulerComponent(path, kubeconfig, reserved))
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.admin)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	defer client.CloseIdleConnections()
	return c.untilHealthy(ctx, p, func(ctx context.Context) error {
		return get(ctx, client, url(reserved)+"/readyz")
	})
}

// StopScheduler ends kube-scheduler. If it isn't running, nothing happens.
func (c *Cluster) StopScheduler() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.running[schedulerName]
	if p == nil {
		return nil
	}
	return p.kill()
}

func (c *Cluster) schedulerComponent(path, kubeconfig string, reserved port.Port) component {
	return component{
		name: schedulerName,
		path: path,
		dir:  c.workspace.dir,
		log:  c.workspace.path(schedulerName + ".log"),
		args: []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--leader-elect=false",
			"--bind-address=" + port.Loopback,
			"--secure-port=" + strconv.Itoa(reserved.Number),
			"--permit-port-sharing=" + strconv.FormatBool(reserved.Kept),
			"--tls-cert-file=" + c.workspace.path("serving.crt"),
			"--tls-private-key-file=" + c.workspace.path("serving.key"),
			"--profiling=false",
		},
	}
}
