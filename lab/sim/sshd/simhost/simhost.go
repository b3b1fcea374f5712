// Package simhost connects a simulated machine to an SSH server: it turns a sim.Machine into an sshd.Machine.
//
// The lab and the tests use it. It adds no behaviour.
package simhost

import (
	"context"
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Machine implements sshd.Machine for a simulated machine.
type Machine struct{ machine *sim.Machine }

// Of returns the sshd.Machine for a simulated machine.
func Of(machine *sim.Machine) Machine { return Machine{machine: machine} }

// Hostname returns the current host name.
func (m Machine) Hostname() string {
	facts, err := m.machine.Host().System.Facts(context.Background())
	if err != nil {
		return ""
	}
	return facts.Hostname
}

// Account returns the account of the machine's administrator. There are no other users.
func (m Machine) Account(user string) (sshd.Account, bool) {
	if !strings.EqualFold(user, m.machine.User()) {
		return sshd.Account{}, false
	}
	return sshd.Account{User: m.machine.User(), Home: m.machine.Home(), Shell: string(m.machine.Shell())}, true
}

// Files returns the file system with the rights of the console.
func (m Machine) Files() winos.Files { return m.machine.Host().Files }

// OpenFile opens a file for SFTP.
func (m Machine) OpenFile(path string, flag int) (sshd.File, error) {
	opened, err := m.machine.OpenFile(path, flag)
	if err != nil {
		return nil, err
	}
	return opened, nil
}

// Exec runs a command line through the account's shell.
func (m Machine) Exec(ctx context.Context, account sshd.Account, command sshd.Command) int {
	return m.machine.Exec(ctx, sim.ExecRequest{
		CommandLine: command.Line,
		Shell:       sim.Shell(account.Shell),
		Stdin:       command.Stdin,
		Stdout:      command.Stdout,
		Stderr:      command.Stderr,
	})
}

// WaitBoot returns when the machine is up.
func (m Machine) WaitBoot(ctx context.Context) (<-chan struct{}, error) {
	boot, err := m.machine.WaitBoot(ctx)
	return boot.Down, err
}

var _ sshd.Machine = Machine{}
