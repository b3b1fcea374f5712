package sim

import (
	"context"
	"fmt"
	"maps"
	"strings"
)

// runWrapped simulates cmd/servicewrapper. The wrapper is a service that runs a program. The program ends when the
// wrapper ends, even if the wrapper is killed.
func runWrapped(ctx context.Context, p *Process) int {
	log, environment, child := splitWrapper(p.Args[1:])
	if len(child) == 0 {
		_, _ = fmt.Fprintln(p.Stderr, "there is no program to run")
		return 1
	}
	m, l := p.Machine, p.launch
	l.argv, l.commandLine, l.parent = child, joinCommandLine(child), p.process
	l.running, l.reported = nil, nil
	maps.Copy(environment, l.environment)
	l.environment = environment
	if log != "" {
		file, err := p.AppendTo(log)
		if err != nil {
			_, _ = fmt.Fprintln(p.Stderr, err)
			return 1
		}
		defer func() { _ = file.Close() }()
		l.stdout, l.stderr = file, file
	}
	code := make(chan int, 1)
	l.ended = func(exitCode int) { code <- exitCode }
	started, err := m.start(context.WithoutCancel(ctx), l)
	if err != nil {
		_, _ = fmt.Fprintln(p.Stderr, err)
		return 1
	}
	p.Running()
	select {
	case exitCode := <-code:
		return max(exitCode, 1)
	case <-p.process.dead:
		m.kill(started)
		return killedCode
	case <-ctx.Done():
		m.kill(started)
		<-started.gone
		return 0
	}
}

// splitWrapper separates the flags of the wrapper from the command that it runs.
func splitWrapper(args []string) (log string, environment map[string]string, child []string) {
	environment = map[string]string{}
	for ; len(args) > 0 && strings.HasPrefix(args[0], "--"); args = args[1:] {
		name, value, _ := strings.Cut(args[0][2:], "=")
		switch name {
		case "log-file":
			log = value
		case "env":
			variable, content, _ := strings.Cut(value, "=")
			environment[variable] = content
		}
	}
	return log, environment, args
}
