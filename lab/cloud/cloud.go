package cloud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// atOnce is the number of Machines that are reconciled concurrently.
const atOnce = 8

// Cloud is a cloud with its machine API. Its methods can be called concurrently.
type Cloud struct {
	manager manager.Manager
	compute *compute
	changes chan event.GenericEvent
	// The channel over is closed when Run ends, so that changes are no longer queued.
	over chan struct{}

	mu      sync.Mutex
	spoiled map[string][]Fault
}

// New creates a cloud. It is inactive until Run.
func New(options Options) (*Cloud, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), machinev1beta1.Install(scheme)); err != nil {
		return nil, fmt.Errorf("making a scheme: %w", err)
	}
	direct := rest.CopyConfig(options.Config)
	direct.QPS = -1 // the API server's own limits are enough
	inNamespace := cache.ByObject{Namespaces: map[string]cache.Config{contract.MachineAPINamespace: {}}}
	made, err := manager.New(direct, manager.Options{
		Scheme: scheme, Logger: options.Log, Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, // several clouds may run in one process
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&machinev1beta1.Machine{}: inNamespace,
			&machinev1beta1.MachineSet{}: inNamespace}},
	})
	if err != nil {
		return nil, fmt.Errorf("making the machine API: %w", err)
	}
	c := &Cloud{manager: made, changes: make(chan event.GenericEvent), over: make(chan struct{}),
		spoiled: map[string][]Fault{}}
	c.compute = newCompute(options, c.changed)
	if err = c.addControllers(options); err != nil {
		return nil, fmt.Errorf("making the machine API: %w", err)
	}
	return c, nil
}

func (c *Cloud) addControllers(options Options) error {
	reader, writer := c.manager.GetAPIReader(), c.manager.GetClient()
	many := controller.Options{MaxConcurrentReconciles: atOnce}
	return errors.Join(
		builder.ControllerManagedBy(c.manager).Named("machineset").For(&machinev1beta1.MachineSet{}).
			Owns(&machinev1beta1.Machine{}).
			Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.setOf)).
			Complete(&sets{Client: writer, live: reader, spoil: c.nextFault}),
		builder.ControllerManagedBy(c.manager).Named("machine").For(&machinev1beta1.Machine{}).WithOptions(many).
			Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(c.machineOf)).
			WatchesRawSource(source.Channel(c.changes, &handler.EnqueueRequestForObject{})).
			Complete(&machines{Client: writer, live: reader, compute: c.compute}),
		builder.ControllerManagedBy(c.manager).Named("node").For(&corev1.Node{}).WithOptions(many).
			Complete(&nodes{Client: writer, compute: c.compute, options: options}),
	)
}

// Run runs the cloud until ctx ends. Then it turns all hosts off.
func (c *Cloud) Run(ctx context.Context) error {
	err := c.manager.Start(ctx)
	close(c.over)
	return errors.Join(err, c.compute.close())
}

// The method changed triggers a reconcile of a Machine.
func (c *Cloud) changed(machine types.NamespacedName) {
	object := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: machine.Namespace, Name: machine.Name}}
	select {
	case c.changes <- event.GenericEvent{Object: object}:
	case <-c.over:
	}
}

// machineOf returns the Machine of a Node.
func (c *Cloud) machineOf(_ context.Context, object client.Object) []reconcile.Request {
	node, ok := object.(*corev1.Node)
	if !ok {
		return nil
	}
	instance, ok := c.compute.find(func(i *instance) bool {
		return i.providerID == node.Spec.ProviderID || i.host != nil && i.address.String() == internalIP(node)
	})
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: instance.machine}}
}

// setOf returns the MachineSet of a Node.
func (c *Cloud) setOf(ctx context.Context, object client.Object) []reconcile.Request {
	for _, request := range c.machineOf(ctx, object) {
		machine := &machinev1beta1.Machine{}
		if err := c.manager.GetClient().Get(ctx, request.NamespacedName, machine); err != nil {
			return nil
		}
		if owner := metav1.GetControllerOf(machine); owner != nil {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: machine.Namespace,
				Name: owner.Name}}}
		}
	}
	return nil
}

// Spoil injects a fault into Machines that a MachineSet creates from now on. count is the number of these Machines.
func (c *Cloud) Spoil(set string, fault Fault, count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoiled[set] = append(c.spoiled[set], slices.Repeat([]Fault{fault}, count)...)
}

func (c *Cloud) nextFault(set string) Fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.spoiled[set]) == 0 {
		return FaultNone
	}
	fault := c.spoiled[set][0]
	c.spoiled[set] = c.spoiled[set][1:]
	return fault
}

// Host returns the host of a Machine, or false if the host doesn't exist (yet).
func (c *Cloud) Host(machine string) (*fleet.Host, bool) {
	c.compute.mu.Lock()
	defer c.compute.mu.Unlock()
	for _, i := range c.compute.instances {
		if i.machine.Name == machine && i.host != nil {
			return i.host, true
		}
	}
	return nil, false
}

// Launched returns the number of all instances ever created.
func (c *Cloud) Launched() int {
	c.compute.mu.Lock()
	defer c.compute.mu.Unlock()
	return c.compute.launched
}
