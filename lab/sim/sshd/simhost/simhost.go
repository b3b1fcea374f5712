// Package simhost answers how a simulated machine stands behind an SSH server: it makes a
// sim.Machine an sshd.Machine.
//
// The lab and the tests use it. It adds nothing to either side.
package simhost

import (
	"context"
	"strings"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Machine is a simulated machine as a server sees it.
type Machine struct{ machine *sim.Machine }

// Of gives the server's view of a machine.
func Of(machine *sim.Machine) Machine { return Machine{machine: machine} }

// Hostname is the name that the machine has now.
func (m Machine) Hostname() string {
	facts, err := m.machine.Host().System.Facts(context.Background())
	if err != nil {
		return ""
	}
	return facts.Hostname
}

// Account knows one user: the machine's administrator.
func (m Machine) Account(user string) (sshd.Account, bool) {
	if !strings.EqualFold(user, m.machine.User()) {
		return sshd.Account{}, false
	}
	return sshd.Account{User: m.machine.User(), Home: m.machine.Home(), Shell: string(m.machine.Shell())}, true
}

// Files is the machine's file system as somebody at its console has it.
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
