package sim

import (
	"context"
	"strings"
)

// program returns the implementation of a process's exe.
func (m *Machine) program(p *process) Program {
	name := strings.ToLower(baseName(p.exe))
	if digits, found := strings.CutPrefix(name, "wicd-"); found && strings.HasSuffix(digits, ".exe") {
		name = daemonExe
	}
	if program, ok := m.programs[name]; ok {
		return program
	}
	switch {
	case name == logRunnerExe:
		return runLogged
	case name == wrapperExe:
		return runWrapped
	case m.standard != nil:
		return m.standard
	case p.service:
		return idle
	}
	return func(context.Context, *Process) int { return 0 }
}

const (
	daemonExe    = "windows-instance-config-daemon.exe"
	logRunnerExe = "kube-log-runner.exe"
	wrapperExe   = "service-wrapper.exe"
)

// idle is a service that does nothing.
func idle(ctx context.Context, p *Process) int {
	p.Running()
	<-ctx.Done()
	return 0
}
