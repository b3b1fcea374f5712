package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/windows-nodes/wmco/internal/sim"
	"github.com/windows-nodes/wmco/internal/sim/sshd"
	"github.com/windows-nodes/wmco/internal/sim/sshd/simhost"
)

// HostOptions describe one host.
type HostOptions struct {
	// Name of the Node that the host becomes; its host name in lower case if empty.
	Name string
	// Machine is the computer; its Address is where the SSH server listens, too.
	Machine sim.Options
	// Lease of that address, which ends with the host. May be nil.
	Lease *Lease
	// Port of the SSH server; 0 takes a free one and keeps it for good.
	Port uint16
	// Settings of the SSH server to begin with. A nil HostKey makes one.
	Settings sshd.Settings
	// Fault that the host has from the start.
	Fault Fault
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

	lease *Lease
}

// Boot makes a host and switches it on. It runs until Close, or until ctx ends. The lease is the host's only when there is no error.
func Boot(ctx context.Context, options HostOptions) (*Host, error) {
	machine, err := sim.New(options.Machine)
	if err != nil {
		return nil, fmt.Errorf("making the machine: %w", err)
	}
	server, err := sshd.Start(ctx, sshd.Options{
		Machine: simhost.Of(machine), Listen: netip.AddrPortFrom(options.Machine.Address, options.Port), Settings: options.Settings,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting its SSH server: %w", err), machine.Close())
	}
	if options.Name == "" {
		options.Name = nodeName(options.Machine.Hostname)
	}
	host := &Host{Name: options.Name, Machine: machine, Server: server, Before: machine.Snapshot(), lease: options.Lease}
	host.Break(options.Fault)
	return host, nil
}

// Close switches the host off for good. A repeated call does nothing.
func (h *Host) Close() error {
	h.Server.Close()
	err := h.Machine.Close()
	if h.lease != nil {
		err = errors.Join(err, h.lease.Release())
		h.lease = nil
	}
	return err
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
