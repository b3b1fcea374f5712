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
	// Name of the host's Node. By default it is the host name in lower case.
	Name string
	// Machine are the options of the simulated machine. The SSH server listens at its Address.
	Machine sim.Options
	// Computer replaces the simulated machine. Then only address and host name of Machine are used. It is closed
	// with the host. May be nil.
	Computer Computer
	// Lease of that address. It is released with the host. May be nil.
	Lease *Lease
	// Port of the SSH server. 0 chooses a free port, which stays the same.
	Port uint16
	// NoSSH leaves out the SSH server: the host joins by itself. See RunJoinCommand.
	NoSSH bool
	// Settings are the initial settings of the SSH server. If HostKey is nil, a key is created.
	Settings sshd.Settings
	// Fault is the initial fault of the host.
	Fault Fault
}

// Computer is an alternative to a simulated machine, such as Wine.
type Computer interface {
	sshd.Machine
	// User returns the administrator's name.
	User() string
	// Snapshot returns the state of the computer: see sim.Snapshot.
	Snapshot(ctx context.Context) (sim.Snapshot, error)
	// Close switches the computer off permanently. A repeated call does nothing.
	Close() error
}

// Host is one host.
type Host struct {
	// Name is the host's node name.
	Name string
	// Machine is the simulated machine. It is nil if the host has a Computer.
	Machine  *sim.Machine
	Computer Computer
	// Server is its SSH server, nil for a host without one.
	Server *sshd.Server
	Fault  Fault
	// Before is the snapshot of the new machine.
	Before sim.Snapshot

	lease *Lease
}

// Boot creates a host and switches it on. It runs until Close, or until ctx ends. If there is an error, Boot closes
// the computer, and the caller keeps the lease.
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

// Close switches the host off permanently. A repeated call does nothing.
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

// Address is where the host's SSH server listens. Without an SSH server, the port is 0.
func (h *Host) Address() netip.AddrPort {
	if h.Server == nil {
		return netip.AddrPortFrom(h.Machine.Address(), 0)
	}
	return h.Server.Address()
}

// Counters returns the counters of the host's SSH server. Without an SSH server, the counters are 0.
func (h *Host) Counters() sshd.Counters {
	if h.Server == nil {
		return sshd.Counters{}
	}
	return h.Server.Counters()
}

// Entry returns the host's key and value in the ConfigMap windows-instances.
func (h *Host) Entry() (key, value string) {
	value = fmt.Sprintf("username=%s,port=%d", h.User(), h.Address().Port())
	if h.Fault == FaultHostKey {
		value += ",hostKey=" + otherHostKey
	}
	return h.Address().Addr().String(), value
}

// otherHostKey is a key that no host has.
const otherHostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
