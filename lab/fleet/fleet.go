package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/sim"
	"github.com/windows-nodes/wmco/internal/sim/sshd"
	"github.com/windows-nodes/wmco/internal/sim/sshd/simhost"
)

// Options say what hosts to start.
type Options struct {
	// Count of hosts.
	Count int
	// AuthorizedKey is the public key that lets in.
	AuthorizedKey ssh.PublicKey
	// Programs are what exes do on a host, by lower-case base name.
	Programs map[string]sim.Program
	// Costs are how long things take on a host; Latency is one way.
	Costs     sim.Costs
	Latency   time.Duration
	Bandwidth int64
	// Faults, one for each of the first hosts, in order.
	Faults []Fault
	// Edit changes the options of host i, from 0, before it is made. May be nil.
	Edit func(i int, options *sim.Options)
	// Log receives what machines do, at V(1).
	Log logr.Logger
}

// Host is one simulated host.
type Host struct {
	// Name is the node name that it will have.
	Name    string
	Machine *sim.Machine
	Server  *sshd.Server
	Fault   Fault
	// Before is what the machine was like when it was made.
	Before sim.Snapshot
}

// Address is where the host's SSH server listens.
func (h *Host) Address() netip.AddrPort { return h.Server.Address() }

// Entry is the host's key and value for the windows-instances ConfigMap.
func (h *Host) Entry() (key, value string) {
	value = fmt.Sprintf("username=%s,port=%d", h.Machine.User(), h.Address().Port())
	if h.Fault == FaultHostKey {
		value += ",hostKey=" + otherHostKey
	}
	return h.Address().Addr().String(), value
}

// otherHostKey is a key that no host has.
const otherHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

// Fleet is the hosts.
type Fleet struct{ Hosts []*Host }

// Start starts all hosts. They run until Close, or until ctx ends.
func Start(ctx context.Context, options Options) (*Fleet, error) {
	f := &Fleet{}
	for i := range options.Count {
		host, err := start(ctx, options, i)
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
		h.Server.Close()
	}
	for _, h := range f.Hosts {
		all = append(all, h.Machine.Close())
	}
	return errors.Join(all...)
}

func start(ctx context.Context, options Options, i int) (*Host, error) {
	machine := sim.Options{
		Address: Address(i), Hostname: fmt.Sprintf("WIN-%03d", i+1), Programs: options.Programs, Costs: options.Costs, Log: options.Log,
		AuthorizedKeys: ssh.MarshalAuthorizedKey(options.AuthorizedKey),
	}
	fault := FaultNone
	if i < len(options.Faults) {
		fault = options.Faults[i]
	}
	if fault == FaultHostname {
		machine.Hostname = fmt.Sprintf("WIN_%03d", i+1) // legal in NetBIOS, illegal in DNS
	}
	if options.Edit != nil {
		options.Edit(i, &machine)
	}
	m, err := sim.New(machine)
	if err != nil {
		return nil, fmt.Errorf("making the machine: %w", err)
	}
	server, err := sshd.Start(ctx, sshd.Options{
		Machine: simhost.Of(m), Listen: netip.AddrPortFrom(machine.Address, 0),
		Settings: sshd.Settings{Latency: options.Latency, Bandwidth: options.Bandwidth},
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting its SSH server: %w", err), m.Close())
	}
	host := &Host{Name: nodeName(machine.Hostname), Machine: m, Server: server, Before: m.Snapshot()}
	host.Break(fault)
	return host, nil
}

// Address of host i, from 0: 127.32.0.1 and up, 250 a /24.
func Address(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 32, byte(i / 250), byte(i%250 + 1)})
}
