package cloud

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/lab/fleet"
)

// compute is the compute service of the cloud. It doesn't use Kubernetes. It has instances, each for one Machine.
type compute struct {
	options Options
	// changed is called with the Machine whose instance has changed.
	changed func(machine types.NamespacedName)

	mu        sync.Mutex
	free      *fleet.Pool
	instances map[types.UID]*instance
	launched  int
	work      sync.WaitGroup
}

// second is the second byte of the addresses of instances.
const second = 33

// instance is one virtual machine. Its fields are guarded by compute.mu, except immutable ones.
type instance struct {
	machine    types.NamespacedName
	uid        types.UID
	number     int
	providerID string
	fault      Fault
	cancel     context.CancelFunc
	// The channel gone is closed when the instance has ended completely.
	gone chan struct{}

	address netip.Addr // invalid until the cloud has assigned an address
	host    *fleet.Host
	err     error // the reason why the instance has no host
}

func newCompute(options Options, changed func(types.NamespacedName)) *compute {
	return &compute{options: options, changed: changed, free: fleet.NewPool(second),
		instances: map[types.UID]*instance{}}
}

// launch creates an instance for a Machine with the current user data. A repeated call returns the same instance.
func (c *compute) launch(ctx context.Context, machine *machinev1beta1.Machine, userData string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.instances[machine.UID] != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the instance runs until it is terminated
	options, setup := c.options.host(machine, userData)
	c.launched++
	i := &instance{
		machine: types.NamespacedName{Namespace: machine.Namespace, Name: machine.Name}, uid: machine.UID,
		number:     c.launched,
		providerID: ProviderID(c.options.Platform, machine.Name), fault: faultOf(machine), cancel: cancel,
		gone: make(chan struct{}),
	}
	c.instances[machine.UID] = i
	wanted := machine.Annotations[AddressAnnotation]
	c.work.Go(func() {
		err := c.run(ctx, i, wanted, options, setup)
		if err != nil {
			c.options.Log.Error(err, "an instance has no host", "machine", i.machine.Name)
			<-ctx.Done()
		}
		c.mu.Lock()
		i.err = err
		c.mu.Unlock()
		close(i.gone)
		c.changed(i.machine)
	})
}

// run runs an instance until ctx ends. Its error reports a failure of the lab itself.
func (c *compute) run(ctx context.Context, i *instance, wanted string, options fleet.HostOptions, setup Setup) error {
	if !pause(ctx, c.options.Provision) {
		return nil
	}
	if wanted != "" {
		return c.ghost(ctx, i, wanted)
	}
	lease, err := c.free.Take(ctx)
	if err != nil {
		return fmt.Errorf("finding an address for %s: %w", i.machine.Name, err)
	}
	if c.options.Boot > 0 || i.fault == FaultNeverBoots {
		c.tell(i, lease.Address, nil)
	}
	if i.fault == FaultNeverBoots || !pause(ctx, c.options.Boot) {
		<-ctx.Done()
		return lease.Release()
	}
	host, err := c.boot(ctx, lease, options, i.providerID)
	if err != nil {
		if ctx.Err() != nil {
			err = nil // the instance was terminated before it booted
		}
		return errors.Join(err, lease.Release())
	}
	c.tell(i, lease.Address, host)
	setup.joins(ctx, host, c.options.Log)
	setup.laterBoots(ctx, host)
	<-ctx.Done()
	return host.Close()
}

// ghost simulates an instance with a duplicate address: connections to the address reach the host that had it first.
func (c *compute) ghost(ctx context.Context, i *instance, wanted string) error {
	address, err := netip.ParseAddr(wanted)
	if err != nil {
		return fmt.Errorf("reading the address for %s: %w", i.machine.Name, err)
	}
	c.tell(i, address, nil)
	<-ctx.Done()
	return nil
}

func (c *compute) boot(ctx context.Context, lease *fleet.Lease, options fleet.HostOptions,
	providerID string) (*fleet.Host, error) {
	options.Machine.Address, options.Lease = lease.Address, lease
	if options.Name == "" {
		options.Name = NodeName(c.options.Platform, options.Machine.Hostname, lease.Address)
	}
	options.Machine.Metadata, options.Machine.MetadataRouted = Metadata(c.options.Platform, options.Name,
		providerID)
	host, err := fleet.Boot(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("booting the host at %s: %w", lease.Address, err)
	}
	return host, nil
}

// tell stores the address and the host of an instance, and triggers a reconcile of its Machine.
func (c *compute) tell(i *instance, address netip.Addr, host *fleet.Host) {
	c.mu.Lock()
	i.address, i.host = address, host
	c.mu.Unlock()
	c.changed(i.machine)
}

// description is the state of an instance as the cloud reports it.
type description struct {
	machine    types.NamespacedName
	providerID string
	address    netip.Addr
	fault      Fault
}

// describe returns the description of the instance of a Machine, or false if it has none.
func (c *compute) describe(machine types.UID) (description, bool) {
	return c.find(func(i *instance) bool { return i.uid == machine })
}

// find returns the description of a matching instance. If several match, it returns the oldest, because packets to a
// duplicate address reach the first instance.
func (c *compute) find(match func(*instance) bool) (description, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found *instance
	for _, i := range c.instances {
		if match(i) && (found == nil || i.number < found.number) {
			found = i
		}
	}
	if found == nil {
		return description{}, false
	}
	return description{machine: found.machine, providerID: found.providerID, address: found.address,
		fault: found.fault}, true
}

// terminate starts to end the instance of a Machine, and reports whether the instance has ended. If the Machine has no
// instance, the result is true.
func (c *compute) terminate(machine types.UID) (ended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i, ok := c.instances[machine]
	if !ok {
		return true
	}
	i.cancel()
	select {
	case <-i.gone:
		delete(c.instances, machine)
		return true
	default:
		return false
	}
}

// close ends all instances.
func (c *compute) close() error {
	c.mu.Lock()
	all := slices.Collect(maps.Values(c.instances))
	c.mu.Unlock()
	for _, i := range all {
		i.cancel()
	}
	c.work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var failures []error
	for _, i := range all {
		failures = append(failures, i.err)
	}
	return errors.Join(failures...)
}

// pause waits for d. If ctx ends first, it returns false.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
