package sim

import (
	"context"
	"net/netip"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// Machine is one simulated Windows Server. Its methods may be called concurrently.
type Machine struct{}

// New makes a machine and boots it. Close must be called to end it.
func New(options Options) (*Machine, error) { panic("not built yet") }

// Close ends all processes at once and waits for them. Repeating it changes nothing.
func (m *Machine) Close() error { panic("not built yet") }

// Host is the machine's OS interface as somebody at the console has it, independent of any process. Files, environment and certificates
// can be looked at while the machine is off.
func (m *Machine) Host() winos.Host { panic("not built yet") }

// Address is the machine's IPv4 address.
func (m *Machine) Address() netip.Addr { panic("not built yet") }

// User is the name of the administrator who logs in over SSH.
func (m *Machine) User() string { panic("not built yet") }

// Home is the user's home directory, C:\Users\<user>.
func (m *Machine) Home() string { panic("not built yet") }

// Shell is the default shell of remote commands.
func (m *Machine) Shell() Shell { panic("not built yet") }

// Boot is one stretch of time between power on and power off.
type Boot struct {
	ID string
	// Down is closed when the machine goes down: an SSH server then closes its listener and all its connections.
	Down <-chan struct{}
}

// WaitBoot returns when the machine is on, at once if it is on already. Its error is ctx's, or says that the machine was closed.
func (m *Machine) WaitBoot(ctx context.Context) (Boot, error) { panic("not built yet") }
