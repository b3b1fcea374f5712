package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Options configure the hosts of a fleet.
type Options struct {
	// Count is the number of hosts.
	Count int
	// AuthorizedKey is the public key that the hosts accept.
	AuthorizedKey ssh.PublicKey
	// Programs are the functions that a host runs instead of its exes. The keys are the base names of the exes in lower
	// case.
	Programs map[string]sim.Program
	// Costs are the durations of operations on a host. Latency is the delay of the network in each direction.
	Costs     sim.Costs
	Latency   time.Duration
	Bandwidth int64
	// Faults are the faults of the hosts: the first host gets the first fault, and so on. The other hosts have no
	// fault.
	Faults []Fault
	// Computer creates a computer with the given host name and address. The host then uses this computer instead of a
	// simulated machine. Computer may be nil.
	Computer func(ctx context.Context, hostname string, address netip.Addr) (Computer, error)
	// Edit changes the options of a machine before it is created. i is the number of the host, from 0. Edit may be nil.
	Edit func(i int, options *sim.Options)
	// Finish changes the options of a host just before it is created, when its address is known. Finish may be nil.
	Finish func(options *HostOptions)
	// Log receives the messages of the machines at verbosity 1.
	Log logr.Logger
}

// Fleet contains the hosts that a scene starts with.
type Fleet struct{ Hosts []*Host }

// second is the second byte of the hosts' addresses.
const second = 32

// Start starts all hosts, at addresses from 127.32.0.1. The hosts run until Close is called or ctx ends.
func Start(ctx context.Context, options Options) (*Fleet, error) {
	f, pool := &Fleet{}, NewPool(second)
	for i := range options.Count {
		host, err := start(ctx, options, i, pool)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting host %d: %w", i, err), f.Close())
		}
		f.Hosts = append(f.Hosts, host)
	}
	return f, nil
}

// Close switches all hosts off.
func (f *Fleet) Close() error {
	var all []error
	for _, h := range f.Hosts {
		h.closeServer()
	}
	for _, h := range f.Hosts {
		all = append(all, h.Close())
	}
	return errors.Join(all...)
}

func start(ctx context.Context, options Options, i int, pool *Pool) (*Host, error) {
	lease, err := pool.Take(ctx)
	if err != nil {
		return nil, err
	}
	host, err := boot(ctx, options, options.host(i, lease))
	if err != nil {
		return nil, errors.Join(err, lease.Release())
	}
	return host, nil
}

// boot starts a host. If the options have a function Computer, boot first creates a computer with it and adds the
// authorized key there.
func boot(ctx context.Context, options Options, host HostOptions) (_ *Host, err error) {
	if options.Computer == nil {
		return Boot(ctx, host)
	}
	if host.Computer, err = options.Computer(ctx, host.Machine.Hostname, host.Machine.Address); err != nil {
		return nil, err
	}
	if err = sshd.Authorize(host.Computer.Files(), options.AuthorizedKey); err != nil {
		return nil, errors.Join(err, host.Computer.Close())
	}
	return Boot(ctx, host)
}

// host returns the options of a host. i is the number of the host, from 0.
func (o Options) host(i int, lease *Lease) HostOptions {
	machine := sim.Options{
		Address: lease.Address, Hostname: fmt.Sprintf("WIN-%03d", i+1), Programs: o.Programs, Costs: o.Costs,
		Log:            o.Log,
		AuthorizedKeys: ssh.MarshalAuthorizedKey(o.AuthorizedKey),
	}
	fault := FaultNone
	if i < len(o.Faults) {
		fault = o.Faults[i]
	}
	if fault == FaultHostname {
		machine.Hostname = fmt.Sprintf("WIN_%03d", i+1) // valid in NetBIOS, invalid in DNS
	}
	if o.Edit != nil {
		o.Edit(i, &machine)
	}
	host := HostOptions{Machine: machine, Lease: lease,
		Settings: sshd.Settings{Latency: o.Latency, Bandwidth: o.Bandwidth}, Fault: fault}
	if o.Finish != nil {
		o.Finish(&host)
	}
	return host
}
