// Package simhost adapts a simulated machine to the SSH server: it implements sshd.Machine for a sim.Machine.
//
// The lab and the tests use this package. It adds no behavior.
package simhost

import (
	"context"
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Machine implements sshd.Machine with a simulated machine.
type Machine struct{ machine *sim.Machine }

// Of returns an sshd.Machine for a simulated machine.
func Of(machine *sim.Machine) Machine { return Machine{machine: machine} }

// Hostname returns the current host name.
func (m Machine) Hostname() string {
	facts, err := m.machine.Host().System.Facts(context.Background())
	if err != nil {
		return ""
	}
	return facts.Hostname
}

// Account returns the account of the machine's administrator. The machine has no other users.
func (m Machine) Account(user string) (sshd.Account, bool) {
	if !strings.EqualFold(user, m.machine.User()) {
		return sshd.Account{}, false
	}
	return sshd.Account{User: m.machine.User(), Home: m.machine.Home(), Shell: string(m.machine.Shell())}, true
}

// Files returns the file system, with the rights that a user at the console has.
func (m Machine) Files() winos.Files { return m.machine.Host().Files }

// OpenFile opens a file for SFTP.
func (m Machine) OpenFile(path string, flag int) (sshd.File, error) {
	opened, err := m.machine.OpenFile(path, flag)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Exec runs a command line in the shell of the account.
func (m Machine) Exec(ctx context.Context, account sshd.Account, command sshd.Command) int {
	return m.machine.Exec(ctx, sim.ExecRequest{
		CommandLine: command.Line,
		Shell:       sim.Shell(account.Shell),
		Stdin:       command.Stdin,
		Stdout:      command.Stdout,
		Stderr:      command.Stderr,
	})
}

// WaitBoot waits until the machine is up. It returns a channel that is closed when the machine goes down.
func (m Machine) WaitBoot(ctx context.Context) (<-chan struct{}, error) {
	boot, err := m.machine.WaitBoot(ctx)
	return boot.Down, err
}

var _ sshd.Machine = Machine{}
