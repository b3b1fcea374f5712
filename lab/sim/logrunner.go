package sim

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// runLogged is kube-log-runner: it runs another program with its output in a file, and ends with
// that program's exit code. Killed, it leaves that program behind.
func runLogged(ctx context.Context, p *Process) int {
	flags, child := splitLogRunner(p.Args[1:])
	if len(child) == 0 {
		_, _ = fmt.Fprintln(p.Stderr, "not enough arguments to run")
		return 1
	}
	m, l := p.Machine, p.launch
	l.argv, l.commandLine, l.parent = child, joinCommandLine(child), p.process
	l.reported, l.ended = nil, nil
	if path := flags["log-file"]; path != "" {
		log, err := m.volume.open(path, opening{flag: os.O_WRONLY | os.O_CREATE | os.O_APPEND, owner: &p.process.owner})
		if err != nil {
			_, _ = fmt.Fprintln(p.Stderr, err)
			return 1
		}
		defer func() { _ = log.Close() }()
		l.stdout, l.stderr = log, log
	}
	code := make(chan int, 1)
	l.ended = func(exitCode int) { code <- exitCode }
	started, err := m.start(context.WithoutCancel(ctx), l)
	if err != nil {
		_, _ = fmt.Fprintln(p.Stderr, err)
		return 1
	}
	stop := context.AfterFunc(ctx, func() {
		if p.process.alive() == nil {
			started.stop(context.Cause(ctx))
		}
	})
	defer stop()
	select {
	case exitCode := <-code:
		return exitCode
	case <-p.process.dead: // Windows ends the wrapper alone; what it runs goes on.
		return killedCode
	}
}

// splitLogRunner separates kube-log-runner's own flags, which end at the first word that is none,
// from the command that it runs.
func splitLogRunner(args []string) (flags map[string]string, child []string) {
	flags = map[string]string{}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, hasValue := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
		args = args[1:]
		boolean := name == "also-stdout" || name == "redirect-stderr"
		if !hasValue && !boolean && len(args) > 0 {
			value, args = args[0], args[1:]
		}
		flags[name] = value
	}
	return flags, args
}
