package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// resync is the minimum time until informers deliver all objects again. Some controllers act only when they get an
	// object.
	resync = 12 * time.Hour
	// mappingPeriod is how often the API server's kinds are read again.
	mappingPeriod = 30 * time.Second
)

// control holds the objects that the controllers share.
type control struct {
	options  *options
	config   *rest.Config
	shared   informers.SharedInformerFactory
	metadata metadatainformer.SharedInformerFactory
	mapper   *restmapper.DeferredDiscoveryRESTMapper
	started  chan struct{} // closed when the informers are started
}

func newControl(ctx context.Context, o *options) (*control, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.Burst = o.qps, o.burst
	config.ContentType, config.DisableCompression = runtime.ContentTypeProtobuf, true
	c := &control{options: o, config: config, started: make(chan struct{})}
	client, err := c.client("shared-informers")
	if err != nil {
		return nil, err
	}
	partial, err := metadata.NewForConfig(c.as("metadata-informers"))
	if err != nil {
		return nil, fmt.Errorf("making a client for metadata: %w", err)
	}
	period := time.Duration(float64(resync) * (1 + rand.Float64())) //nolint:gosec // no secret
	c.shared = informers.NewSharedInformerFactoryWithOptions(client, period, informers.WithTransform(trim))
	c.metadata = metadatainformer.NewSharedInformerFactoryWithOptions(partial, period,
		metadatainformer.WithTransform(trim))
	c.mapper = restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	go wait.UntilWithContext(ctx, func(context.Context) { c.mapper.Reset() }, mappingPeriod)
	return c, nil
}

// trim removes fields that no controller reads.
func trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

// The method as returns a configuration with the controller's name, which the API server's audit log then shows.
func (c *control) as(controller string) *rest.Config {
	return rest.AddUserAgent(rest.CopyConfig(c.config), controller)
}

// client creates a client with the controller's own rate limit.
func (c *control) client(controller string) (kubernetes.Interface, error) {
	client, err := kubernetes.NewForConfig(c.as(controller))
	if err != nil {
		return nil, fmt.Errorf("making a client for %s: %w", controller, err)
	}
	return client, nil
}

// loop runs a controller until its context ends.
type loop func(ctx context.Context)

// build creates the requested controllers.
func (c *control) build(ctx context.Context) ([]loop, error) {
	known := constructors()
	var loops []loop
	for _, name := range c.options.controllers {
		construct, ok := known[name]
		if !ok {
			return nil, fmt.Errorf("making the controllers: %q is unknown; the controllers are %q", name, names())
		}
		client, err := c.client(name)
		if err != nil {
			return nil, err
		}
		made, err := construct(ctx, c, client)
		if err != nil {
			return nil, fmt.Errorf("making %s: %w", name, err)
		}
		loops = append(loops, made)
	}
	return loops, nil
}

// start starts the informers.
func (c *control) start(ctx context.Context) {
	c.shared.Start(ctx.Done())
	c.metadata.Start(ctx.Done())
	close(c.started)
}

// names returns the names of the available controllers.
func names() []string { return slices.Sorted(maps.Keys(constructors())) }
