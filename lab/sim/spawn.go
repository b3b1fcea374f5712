package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

// process is one running program.
type process struct {
	pid, parent uint32
	exe         string
	commandLine string
	environment map[string]string
	owner       owner
	// stop asks the program to end. The cause says why.
	stop context.CancelCauseFunc
	// release must be called when the process no longer runs the exe.
	release func()
	// gone is closed when the process has ended completely.
	gone chan struct{}
	// service means that the service manager started the process, either directly or through a log runner.
	service bool
	// dead is closed when the process is killed.
	dead chan struct{}
	once sync.Once
	// linger is how long the process continues to exist after its program has returned, in nanoseconds.
	linger atomic.Int64
}

var (
	errAsked  = errors.New("the process was asked to stop")
	errKilled = errors.New("the process was killed")
)

// killedCode is the exit code of a killed process.
const killedCode = 1

// launch describes how to start a process.
type launch struct {
	argv        []string // argv[0] is the absolute path of the exe
	commandLine string
	dir         string
	environment map[string]string // takes precedence over the system's environment
	parent      *process
	service     bool
	// program is the implementation of the exe. If it is nil, the machine chooses the implementation.
	program Program

	stdin          io.Reader
	stdout, stderr io.Writer
	running        func()
	// reported is called with the exit code when the program has ended. It returns how long the process continues to
	// exist. It may be nil.
	reported func(exitCode int) time.Duration
	// ended is called when the process has ended completely. It may be nil.
	ended func(exitCode int)
}

// start starts a process and returns immediately. If the process can't be started, start returns an error. The process
// ends at the latest when ctx ends. The program can use the values of ctx.
func (m *Machine) start(ctx context.Context, l launch) (*process, error) {
	exe := l.argv[0]
	release, err := m.volume.run(exe)
	if err != nil {
		return nil, err
	}
	p := &process{
		exe: exe, commandLine: l.commandLine, environment: m.processEnvironment(l.environment), release: release,
		service: l.service,
		gone:    make(chan struct{}), dead: make(chan struct{}),
	}
	if l.parent != nil {
		p.parent = l.parent.pid
		if err := l.parent.alive(); err != nil {
			release()
			return nil, err
		}
	}
	ctx, p.stop = context.WithCancelCause(ctx)
	if !m.enter(p) {
		release()
		p.stop(errKilled)
		return nil, ErrOff
	}
	started := m.spawn(func() { m.run(ctx, p, l) })
	if !started {
		m.leave(p)
		release()
		p.stop(errKilled)
		return nil, ErrOff
	}
	return p, nil
}

// StartProgram starts an exe that belongs to no service, and returns the process ID. The program runs until it is
// killed, like the shims of containers, which run longer than containerd.
func (m *Machine) StartProgram(exe string) (pid uint32, err error) {
	p, err := m.start(context.Background(),
		launch{argv: []string{exe}, commandLine: exe, dir: systemDir, program: hangs})
	if err != nil {
		return 0, err
	}
	return p.pid, nil
}

func (m *Machine) run(ctx context.Context, p *process, l launch) {
	exitCode := killedCode
	// Call end in a deferred function, because a test that fails inside a program ends the goroutine.
	defer func() { m.end(p, l, exitCode) }()
	if m.spend(ctx, m.knobs.costs().ProcessStart) {
		program := l.program
		if program == nil {
			program = m.program(p)
		}
		exitCode = program(logr.NewContext(ctx, m.log.WithValues("pid", p.pid, "program", baseName(p.exe))),
			m.view(p, l))
	}
}

// end cleans up after a process whose program has ended.
func (m *Machine) end(p *process, l launch, exitCode int) {
	if p.alive() != nil {
		exitCode = killedCode
	}
	m.log.V(1).Info("process ended", "pid", p.pid, "exe", p.exe, "exitCode", exitCode)
	linger := time.Duration(p.linger.Load())
	if l.reported != nil {
		linger = max(linger, l.reported(exitCode))
	}
	if linger > 0 {
		p.stay(linger, m.power.boot().Down)
	}
	p.stop(errKilled)
	m.volume.end(&p.owner, true)
	m.ports.releaseAll(p)
	p.release()
	m.leave(p)
	if l.ended != nil {
		l.ended(exitCode)
	}
	close(p.gone)
}

// stay keeps a process running for the time d after its program has ended.
func (p *process) stay(d time.Duration, down <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.dead:
	case <-down:
	}
}

func (m *Machine) view(p *process, l launch) *Process {
	view := &Process{
		PID: p.pid, Args: l.argv, Env: maps.Clone(p.environment), Dir: l.dir, Host: m.hostFor(p), Machine: m,
		Stdin: l.stdin, Stdout: l.stdout, Stderr: l.stderr, Running: l.running, process: p, launch: l,
		Listen: func(port int) (func(), error) { return m.ports.listen(port, baseName(p.exe), p) },
		ListenTCP: func(ctx context.Context, port int) (net.Listener, error) {
			return networkFace{face{m, p}}.listen(ctx, m.address, port)
		},
		AppendTo: func(path string) (io.WriteCloser, error) {
			return m.volume.open(path, opening{flag: os.O_WRONLY | os.O_CREATE | os.O_APPEND, owner: &p.owner})
		},
		MakeNetwork: m.CreateHNSNetwork,
	}
	if view.Stdin == nil {
		view.Stdin = bytes.NewReader(nil)
	}
	if view.Stdout == nil {
		view.Stdout = io.Discard
	}
	if view.Stderr == nil {
		view.Stderr = io.Discard
	}
	if view.Running == nil {
		view.Running = func() {}
	}
	return view
}

// kill ends processes by force: it closes their files immediately, and the machine then refuses their calls. The
// processes have ended completely when their programs return.
func (m *Machine) kill(all ...*process) {
	for _, p := range all {
		p.once.Do(func() { close(p.dead) })
		m.volume.end(&p.owner, true)
		m.ports.releaseAll(p)
	}
	for _, p := range all {
		p.stop(errKilled)
	}
}

// killTree kills a process and all its descendants.
func (m *Machine) killTree(p *process) {
	tree := []*process{p}
	for _, other := range m.processes.all() { // a child has a higher ID than its parent
		if slices.ContainsFunc(tree, func(parent *process) bool { return parent.pid == other.parent }) {
			tree = append(tree, other)
		}
	}
	m.kill(tree...)
}

// alive returns an error if the process can no longer use the machine. The console (nil) can always use it.
func (p *process) alive() error {
	if p == nil {
		return nil
	}
	select {
	case <-p.dead:
		return ErrEnded
	default:
		return nil
	}
}

// spend waits for the time d. It returns false if ctx ends first.
func (m *Machine) spend(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
