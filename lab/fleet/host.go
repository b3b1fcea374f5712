package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
	"github.com/windows-nodes/wmco/lab/sim/sshd/simhost"
)

// HostOptions describe one host.
type HostOptions struct {
	// Name of the Node that the host becomes; its host name in lower case if empty.
	Name string
	// Machine is the computer; its Address is where the SSH server listens, too.
	Machine sim.Options
	// Computer takes the place of a simulated machine; only address and host name of Machine count
	// then. It ends with the host. May be nil.
	Computer Computer
	// Lease of that address, which ends with the host. May be nil.
	Lease *Lease
	// Port of the SSH server; 0 takes a free one and keeps it for good.
	Port uint16
	// Settings of the SSH server to begin with. A nil HostKey makes one.
	Settings sshd.Settings
	// Fault that the host has from the start.
	Fault Fault
}

// Computer is what a host can be made of beside a simulated machine, such as Wine.
type Computer interface {
	sshd.Machine
	// User is the administrator.
	User() string
	// Snapshot is what the computer holds: see sim.Snapshot.
	Snapshot(ctx context.Context) (sim.Snapshot, error)
	// Close switches it off for good. A repeated call does nothing.
	Close() error
}

// Host is one host.
type Host struct {
	// Name is the node name that it will have.
	Name string
	// Machine is the simulated machine, nil for a host that is made of a Computer.
	Machine  *sim.Machine
	Computer Computer
	Server   *sshd.Server
	Fault    Fault
	// Before is what the machine was like when it was made.
	Before sim.Snapshot

	lease *Lease
}

// Boot makes a host and switches it on. It runs until Close, or until ctx ends. The lease is the
// host's only when there is no error; the computer is closed if there is one.
func Boot(ctx context.Context, options HostOptions) (_ *Host, err error) {
	host := &Host{Name: options.Name, Computer: options.Computer}
	if host.Name == "" {
		host.Name = nodeName(options.Machine.Hostname)
	}
	var behind sshd.Machine = host.Computer
	if host.Computer == nil {
		if host.Machine, err = sim.New(options.Machine); err != nil {
			return nil, fmt.Errorf("making the machine: %w", err)
		}
		behind = simhost.Of(host.Machine)
	}
	host.Server, err = sshd.Start(ctx, sshd.Options{
		Machine: behind, Listen: netip.AddrPortFrom(options.Machine.Address, options.Port), Settings: options.Settings,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting its SSH server: %w", err), host.closeMachine())
	}
	if host.Before, err = host.Snapshot(ctx); err != nil {
		return nil, errors.Join(err, host.Close())
	}
	host.lease = options.Lease
	host.Break(options.Fault)
	return host, nil
}

// Snapshot is what the host holds.
func (h *Host) Snapshot(ctx context.Context) (sim.Snapshot, error) {
	if h.Computer != nil {
		return h.Computer.Snapshot(ctx)
	}
	return h.Machine.Snapshot(), nil
}

// User is the host's administrator.
func (h *Host) User() string {
	if h.Computer != nil {
		return h.Computer.User()
	}
	return h.Machine.User()
}

// Close switches the host off for good. A repeated call does nothing.
func (h *Host) Close() error {
	h.Server.Close()
	err := h.closeMachine()
	if h.lease != nil {
		err = errors.Join(err, h.lease.Release())
		h.lease = nil
	}
	return err
}

func (h *Host) closeMachine() error {
	if h.Computer != nil {
		return h.Computer.Close()
	}
	return h.Machine.Close()
}

// Address is where the host's SSH server listens.
func (h *Host) Address() netip.AddrPort { return h.Server.Address() }

// Entry is the host's key and value for the windows-instances ConfigMap.
func (h *Host) Entry() (key, value string) {
	value = fmt.Sprintf("username=%s,port=%d", h.User(), h.Address().Port())
	if h.Fault == FaultHostKey {
		value += ",hostKey=" + otherHostKey
	}
	return h.Address().Addr().String(), value
}

// otherHostKey is a key that no host has.
const otherHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
