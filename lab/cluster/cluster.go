package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/lab/port"
)

// Cluster is a running control plane. Its methods can be called concurrently. Its fields don't change.
type Cluster struct {
	// URL is the URL of the API server, with its port: https://127.0.0.1:41234.
	URL string
	// CAPEM is the certificate of the CA. The same CA signs for the API server, clients, and certificate requests.
	CAPEM []byte
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// DataDir contains all files of the cluster, including the logs of the components.
	DataDir string
	// AuditLog is the file of audit events. Without Options.Audit, AuditLog is empty.
	AuditLog string
	// Binaries are the programs in use, and kubectl.
	Binaries Binaries

	admin     *rest.Config
	ca        *signingCA
	workspace *workspace
	died      chan error
	release   []func() // of the reserved ports

	// These fields are needed to restart the components on the same ports.
	apiServer, controllerManager component
	controllerManagerURL         string

	mu      sync.Mutex
	running map[string]*process
	stopped bool
}

// startAttempts is the maximum number of attempts to start, each with different ports. Two port conflicts in a row are
// rare. Three have a different cause.
const startAttempts = 3

// Start builds the missing programs, starts etcd, the API server and the controller manager, and returns when the API
// server is ready and the controllers work. ctx limits only the start. The cluster runs until Stop, or until the
// calling process ends. A failed start removes everything. If a component ended or didn't become healthy, the error is
// a *ComponentError.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	options = options.withDefaults()
	if options.Binaries == (Binaries{}) {
		binaries, err := Build(ctx, BuildOptions{Progress: options.Progress, AnyKubectl: options.AnyKubectl})
		if err != nil {
			return nil, err
		}
		options.Binaries = binaries
	}
	w, err := openWorkspace(options.DataDir, options.Keep)
	if err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := attemptStart(ctx, options, w)
		if err == nil {
			return c, nil
		}
		var ended *ComponentError
		if attempt == startAttempts || !errors.As(err, &ended) || !ended.portTaken {
			return nil, errors.Join(fmt.Errorf("starting the control plane: %w", err), w.remove())
		}
	}
}

// attemptStart starts all components with new keys and ports, or none.
func attemptStart(ctx context.Context, options Options, w *workspace) (*Cluster, error) {
	ctx, cancel := context.WithTimeout(ctx, options.StartTimeout)
	defer cancel()
	if err := w.empty(); err != nil {
		return nil, err
	}
	keys, err := newKeyring()
	if err != nil {
		return nil, err
	}
	f, err := writeFiles(w, keys, options.Audit)
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		CAPEM: keys.ca.certPEM, DataDir: w.dir, AuditLog: f.auditLog, Binaries: options.Binaries,
		ca: keys.ca, workspace: w, died: make(chan error, 1), running: map[string]*process{},
	}
	if err := c.bringUp(ctx, options, f); err != nil {
		return nil, errors.Join(err, c.endAll())
	}
	return c, nil
}

func (c *Cluster) bringUp(ctx context.Context, options Options, f files) error {
	apiPort, err := c.reserve(ctx)
	if err != nil {
		return err
	}
	managerPort, err := c.reserve(ctx)
	if err != nil {
		return err
	}
	c.URL = url(apiPort)
	if c.admin, err = f.writeKubeconfigs(c.workspace, c.ca, c.URL); err != nil {
		return err
	}
	c.Kubeconfig = f.adminKubeconfig
	c.apiServer = apiServerComponent(options.Binaries, c.workspace, f, apiPort)
	c.controllerManager = controllerManagerComponent(options, c.workspace, f, managerPort)
	c.controllerManagerURL = url(managerPort)
	if err := c.startEtcd(ctx, etcdComponent(options.Binaries, c.workspace)); err != nil {
		return err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return err
	}
	return c.startControllerManager(ctx)
}

func (c *Cluster) reserve(ctx context.Context) (port.Port, error) {
	p, err := port.Reserve(ctx)
	if err != nil {
		return port.Port{}, err
	}
	c.release = append(c.release, p.Release)
	return p, nil
}

func url(p port.Port) string { return "https://" + p.Address() }

// launch starts a component and watches it. Died reports an unexpected end.
func (c *Cluster) launch(ctx context.Context, what component) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("starting %s: the cluster is stopped", what.name)
	}
	if old := c.running[what.name]; old != nil && !old.hasEnded() {
		return nil, fmt.Errorf("starting %s: it is running", what.name)
	}
	p, err := start(ctx, what)
	if err != nil {
		return nil, err
	}
	c.running[what.name] = p
	go func() {
		<-p.ended
		if p.asked.Load() {
			return
		}
		select {
		case c.died <- explain(p.component, endedHow(p)):
		default: // a previous error has not been read yet; this one is its consequence
		}
	}()
	return p, nil
}

// Died receives a *ComponentError when a component ends unexpectedly. After that, the only useful operation on the
// cluster is Stop. The channel receives at most one error and is never closed.
func (c *Cluster) Died() <-chan error { return c.died }

// Stop ends all components, waits for their end, and removes the data directory unless it is kept. It is idempotent.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	repeated := c.stopped
	c.stopped = true
	c.mu.Unlock()
	if repeated {
		return nil
	}
	return errors.Join(c.endAll(), c.workspace.remove())
}

// endAll ends the components, clients before servers, and releases their ports.
func (c *Cluster) endAll() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var failures []error
	for _, name := range []string{schedulerName, controllerManagerName, apiServerName, etcdName} {
		if p := c.running[name]; p != nil {
			failures = append(failures, p.kill())
		}
	}
	for _, release := range c.release {
		release()
	}
	c.release = nil
	return errors.Join(failures...)
}
