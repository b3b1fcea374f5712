//go:build unix

package cluster

import "syscall"

// suspend stops the process from running until resume, and returns when none of its threads runs
// any more; its sockets stay open and connections to it hang. A repeated call does nothing.
func (p *process) suspend() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(p.cmd.Process.Pid)
}

// resume lets a suspended process go on. A repeated call does nothing.
func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
