//go:build unix

package cluster

import "syscall"

// suspend stops the process from running until resume; its sockets stay open and
// connections to it hang. A repeated call does nothing.
func (p *process) suspend() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// resume lets a suspended process go on. A repeated call does nothing.
func (p *process) resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
