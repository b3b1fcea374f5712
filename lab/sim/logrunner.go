package sim

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

// runLogged simulates kube-log-runner. It runs a program, writes the program's output to a file, and returns the
// program's exit code. If kube-log-runner is killed, the program continues to run.
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
		log := &runnerLog{process: p, path: path}
		if err := log.open(flags["log-file-size"]); err != nil {
			_, _ = fmt.Fprintln(p.Stderr, err)
			return 1
		}
		defer log.close()
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
	case <-p.process.dead: // Windows ends only kube-log-runner; the program continues.
		return killedCode
	}
}

// runnerLog is the log file of kube-log-runner. When the file is full, it is closed and renamed. If a different Go
// program has the file open, Windows refuses to rename it. kube-log-runner then closes the pipe from its program and
// writes no more output. klog ignores the closed pipe.
type runnerLog struct {
	process *Process
	path    string
	limit   int64

	mu   sync.Mutex
	file *File
	size int64
}

func (l *runnerLog) open(limit string) error {
	if limit != "" {
		size, err := resource.ParseQuantity(limit)
		if err != nil {
			return fmt.Errorf("invalid -log-file-size: %w", err)
		}
		l.limit = size.Value()
	}
	return l.reopen()
}

func (l *runnerLog) reopen() (err error) {
	m := l.process.Machine
	l.file, err = m.volume.open(l.path, opening{flag: os.O_WRONLY | os.O_CREATE | os.O_APPEND,
		owner: &l.process.process.owner})
	if err != nil {
		return err
	}
	info, err := l.file.Stat()
	l.size = info.Size
	return err
}

// Write implements io.Writer.
func (l *runnerLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return 0, os.ErrClosed
	}
	if l.limit > 0 && l.size+int64(len(p)) > l.limit {
		file := l.file
		l.file = nil
		_ = file.Close()
		m := l.process.Machine
		aside := strings.TrimSuffix(l.path, ".log") + "-" + m.now().UTC().Format("20060102-150405") + ".log"
		if err := m.volume.rename(l.path, aside); err != nil {
			return 0, err
		}
		if err := l.reopen(); err != nil {
			return 0, err
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

func (l *runnerLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// splitLogRunner separates the flags of kube-log-runner from the command that it runs. The command begins with the
// first argument that isn't a flag.
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
