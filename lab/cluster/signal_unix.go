//go:build unix

package cluster

import "syscall"

// suspend stops the process until resume, and returns when all its threads have stopped. Its sockets stay open and
// connections to it hang. It is idempotent.
func (p *process) suspend() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStop(p.cmd.Process.Pid)
}

// resume continues a suspended process. It is idempotent.
func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
