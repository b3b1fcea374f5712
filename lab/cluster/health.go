package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// healthPoll is the interval of health checks while a component starts.
const healthPoll = 50 * time.Millisecond

func (c *Cluster) startEtcd(ctx context.Context, what component) error {
	p, err := c.launch(ctx, what)
	if err != nil {
		return err
	}
	// It is enough that etcd's socket listens: the API server becomes ready only if etcd works.
	return c.untilHealthy(ctx, p, func(ctx context.Context) error {
		if client, _ := etcdURLs(); strings.HasPrefix(client, "http://") {
			return get(ctx, http.DefaultClient, client+"/health")
		}
		_, err := os.Stat(filepath.Join(what.dir, etcdSocket))
		return err
	})
}

// startAPIServer starts or restarts the API server.
func (c *Cluster) startAPIServer(ctx context.Context) error {
	p, err := c.launch(ctx, c.apiServer)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.admin)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	defer client.CloseIdleConnections()
	return c.untilHealthy(ctx, p, func(ctx context.Context) error {
		return get(ctx, client, c.URL+"/readyz")
	})
}

// startControllerManager starts or restarts the controller manager.
func (c *Cluster) startControllerManager(ctx context.Context) error {
	p, err := c.launch(ctx, c.controllerManager)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(c.admin)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	defer client.CloseIdleConnections()
	objects, err := kubernetes.NewForConfigAndClient(c.admin, client)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	return c.untilHealthy(ctx, p, func(ctx context.Context) error {
		if err := get(ctx, client, c.controllerManagerURL+"/healthz"); err != nil {
			return err
		}
		return controllersWork(ctx, objects)
	})
}

// controllersWork checks for the default service account, which a controller creates. This is more reliable than
// /healthz: without the account, no pod can be created.
func controllersWork(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return errors.New("no controller has made service account default/default yet")
	}
	return err
}

// untilHealthy calls `ask` until it returns nil, any component has ended, or ctx is done. If a component has ended, the
// error is about that component, because other components can't become healthy without it.
func (c *Cluster) untilHealthy(ctx context.Context, p *process, ask func(ctx context.Context) error) error {
	ticker := time.NewTicker(healthPoll)
	defer ticker.Stop()
	began := time.Now()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if dead := c.firstEnded(); dead != nil {
			return explain(dead.component, endedHow(dead))
		}
		select {
		case <-ctx.Done():
			return explain(p.component, fmt.Sprintf("was not healthy after %s (%v; %v)",
				time.Since(began).Round(time.Second), context.Cause(ctx), err))
		case <-ticker.C:
		}
	}
}

// firstEnded returns a component that has ended. If several have ended, it returns the component that the others
// depend on.
func (c *Cluster) firstEnded() *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range []string{etcdName, apiServerName, controllerManagerName} {
		if p := c.running[name]; p != nil && p.hasEnded() {
			return p
		}
	}
	return nil
}

// endedHow describes how a process has ended.
func endedHow(p *process) string {
	if p.err == nil {
		return "ended: exit status 0"
	}
	return fmt.Sprintf("ended: %v", p.err)
}

// get returns nil if the status is 200, and otherwise an error with the body, which names the unhealthy parts.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("it answers %s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
