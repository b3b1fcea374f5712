package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/lab/port"
)

// Cluster is a running control plane. Its methods may be called from several
// goroutines; its fields don't change.
type Cluster struct {
	// URL is the API server's, with its port: https://127.0.0.1:41234.
	URL string
	// CAPEM is the certificate of the CA that signs for everybody: the API
	// server, clients, and the requests that the controller manager signs.
	CAPEM []byte
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// DataDir holds it and everything else, the components' logs among it.
	DataDir string
	// AuditLog is the file of audit events, or empty if Options.Audit was false.
	AuditLog string
	// Binaries are the programs in use, and kubectl.
	Binaries Binaries

	admin     *rest.Config
	ca        *signingCA
	workspace *workspace
	died      chan error
	release   []func() // of the reserved ports

	// What is needed to start these anew, on their ports.
	apiServer, controllerManager component
	controllerManagerURL         string

	mu      sync.Mutex
	running map[string]*process
	stopped bool
}

// startAttempts bounds how often a start begins anew with other ports. A second
// clash in a row is rare, a third means something else.
const startAttempts = 3

// Start builds what is missing, starts etcd, the API server and the controller
// manager, and returns when the API server is ready and the controllers work.
// ctx bounds the start only; the cluster runs until Stop, and never longer than
// the calling process. A start that fails leaves nothing behind; its error is a
// *ComponentError when a component ended or didn't become healthy.
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

// attemptStart starts the components, with keys and ports of its own, or none.
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

// launch starts a component and watches over it: its unasked end is told on Died.
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
		default: // one death is already waiting to be read; others follow from it
		}
	}()
	return p, nil
}

// Died delivers a *ComponentError when a component ends without having been asked
// to: after that, the cluster is of no use except to be stopped. It delivers at
// most one, and is never closed.
func (c *Cluster) Died() <-chan error { return c.died }

// Stop ends all components, waits until they are gone, and removes the data
// directory unless it is to be kept. A repeated call does nothing.
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

// endAll ends the components, clients before servers, and frees their ports.
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
