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

// HostOptions are the options of one host.
type HostOptions struct {
	// Name is the name of the host's Node. By default it is the host name in lower case.
	Name string
	// Machine contains the options of the simulated machine. The SSH server listens at the address in Machine.
	Machine sim.Options
	// Computer replaces the simulated machine if it is not nil. Then only the address and the host name in Machine are
	// used. Host.Close also closes the computer.
	Computer Computer
	// Lease is the lease of the address in Machine, or nil. Host.Close also releases the lease.
	Lease *Lease
	// Port is the port of the SSH server. If it is 0, the server chooses a free port and keeps it.
	Port uint16
	// NoSSH starts the host without an SSH server, because it joins by itself: see RunJoinCommand.
	NoSSH bool
	// Settings are the initial settings of the SSH server. If HostKey is nil, the server creates a key.
	Settings sshd.Settings
	// Fault is the initial fault of the host.
	Fault Fault
}

// Computer is a computer that a host uses instead of a simulated machine, for example Wine.
type Computer interface {
	sshd.Machine
	// User returns the name of the administrator.
	User() string
	// Snapshot returns the state of the computer: see sim.Snapshot.
	Snapshot(ctx context.Context) (sim.Snapshot, error)
	// Close switches the computer off permanently. It may be called more than once.
	Close() error
}

// Host is a running host.
type Host struct {
	// Name is the name of the host's Node.
	Name string
	// Machine is the simulated machine. It is nil if the host has a Computer.
	Machine  *sim.Machine
	Computer Computer
	// Server is the SSH server of the host. It is nil if the host has none.
	Server *sshd.Server
	Fault  Fault
	// Before is the snapshot of the machine when it was new.
	Before sim.Snapshot

	lease *Lease
}

// Boot creates a host and switches it on. The host runs until Close is called or ctx ends. If Boot fails, it closes the
// computer, but the caller must release the lease.
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
	if !options.NoSSH {
		host.Server, err = sshd.Start(ctx, sshd.Options{Machine: behind, Settings: options.Settings,
			Listen: netip.AddrPortFrom(options.Machine.Address, options.Port)})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("starting its SSH server: %w", err), host.closeMachine())
		}
	}
	if host.Before, err = host.Snapshot(ctx); err != nil {
		return nil, errors.Join(err, host.Close())
	}
	host.lease = options.Lease
	host.Break(options.Fault)
	return host, nil
}

// Snapshot returns the state of the host.
func (h *Host) Snapshot(ctx context.Context) (sim.Snapshot, error) {
	if h.Computer != nil {
		return h.Computer.Snapshot(ctx)
	}
	return h.Machine.Snapshot(), nil
}

// User returns the name of the host's administrator.
func (h *Host) User() string {
	if h.Computer != nil {
		return h.Computer.User()
	}
	return h.Machine.User()
}

// Close switches the host off permanently. It may be called more than once.
func (h *Host) Close() error {
	h.closeServer()
	err := h.closeMachine()
	if h.lease != nil {
		err = errors.Join(err, h.lease.Release())
		h.lease = nil
	}
	return err
}

func (h *Host) closeServer() {
	if h.Server != nil {
		h.Server.Close()
	}
}

func (h *Host) closeMachine() error {
	if h.Computer != nil {
		return h.Computer.Close()
	}
	return h.Machine.Close()
}

// Address returns the address and the port of the host's SSH server. If the host has no SSH server, the port is 0.
func (h *Host) Address() netip.AddrPort {
	if h.Server == nil {
		return netip.AddrPortFrom(h.Machine.Address(), 0)
	}
	return h.Server.Address()
}

// Counters returns the counters of the host's SSH server. If the host has no SSH server, all counters are 0.
func (h *Host) Counters() sshd.Counters {
	if h.Server == nil {
		return sshd.Counters{}
	}
	return h.Server.Counters()
}

// Entry returns the key and the value of the host's entry in the ConfigMap windows-instances.
func (h *Host) Entry() (key, value string) {
	value = fmt.Sprintf("username=%s,port=%d", h.User(), h.Address().Port())
	if h.Fault == FaultHostKey {
		value += ",hostKey=" + otherHostKey
	}
	return h.Address().Addr().String(), value
}

// otherHostKey is an SSH host key that no host has.
const otherHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
