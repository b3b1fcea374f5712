package sim

import (
	"context"
	"io"
	"strconv"
	"strings"
)

// ExecRequest is a request to run a remote command.
type ExecRequest struct {
	// CommandLine is the command line. The shell gets it unchanged.
	CommandLine string
	// Shell is the shell that runs the command line. Default: the default shell of the machine.
	Shell Shell
	// Stdin, Stdout and Stderr may be nil.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// lostCode is the exit code of a command if its shell was killed.
const lostCode = -1

// Exec runs a command through a shell, in the same way as the SSH server of the machine. The working directory is the
// user's home directory. Exec returns the exit code of the shell. If ctx is cancelled or the machine goes down, the
// processes of the command are killed, and the exit code is -1.
//
// The shell can run a program with arguments, or the command exit. It refuses pipes, redirections and variables,
// because no caller uses them.
func (m *Machine) Exec(ctx context.Context, request ExecRequest) (exitCode int) {
	shell := request.Shell
	if shell == "" {
		shell = m.Shell()
	}
	interpreter, exe, flag := cmdShell, systemDir+`\cmd.exe`, "/c"
	if shell == ShellPowerShell {
		interpreter, exe, flag = powerShell, systemDir+`\WindowsPowerShell\v1.0\powershell.exe`, "-c"
	}
	if ctx.Err() != nil {
		return lostCode
	}
	exitCode = lostCode
	down := m.power.boot().Down
	// killTree below kills the processes when ctx ends. Without WithoutCancel, they would only be asked to stop.
	p, err := m.start(context.WithoutCancel(ctx), launch{
		argv:        []string{exe, flag, request.CommandLine},
		commandLine: `"` + exe + `" ` + flag + ` "` + request.CommandLine + `"`,
		dir:         m.Home(), environment: m.userEnvironment(), stdin: request.Stdin, stdout: request.Stdout,
		stderr: request.Stderr,
		program: func(ctx context.Context, p *Process) int {
			exitCode = interpreter(ctx, p, request.CommandLine)
			return exitCode
		},
	})
	if err != nil {
		return lostCode
	}
	stop := context.AfterFunc(ctx, func() { m.killTree(p) })
	defer stop()
	m.processes.remote(p, true)
	defer m.processes.remote(p, false)
	<-p.gone
	select {
	case <-p.dead:
		return lostCode
	case <-down:
		return lostCode
	default:
		return exitCode
	}
}

// dropSessions simulates what happens when an HNS network is removed: Windows rebinds the network card, open
// connections break, and OpenSSH for Windows ends the commands of the broken connections.
func (m *Machine) dropSessions() {
	for _, p := range m.processes.sessions() {
		m.killTree(p)
	}
}

func (m *Machine) userEnvironment() map[string]string {
	return map[string]string{"USERNAME": m.user, "USERPROFILE": m.Home(), "HOMEDRIVE": "C:",
		"HOMEPATH": strings.TrimPrefix(m.Home(), "C:")}
}

// runChild runs a program as a child process of a shell and returns its exit code.
func (p *Process) runChild(ctx context.Context, exe string, args []string, stdin io.Reader, stdout,
	stderr io.Writer) (int, error) {
	argv := append([]string{exe}, args...)
	code := lostCode
	child, err := p.Machine.start(ctx, launch{
		argv: argv, commandLine: joinCommandLine(argv), dir: p.Dir, environment: p.launch.environment,
		parent: p.process,
		stdin:  stdin, stdout: stdout, stderr: stderr,
		ended: func(exitCode int) { code = exitCode },
	})
	if err != nil {
		return 0, err
	}
	<-child.gone
	return code, nil
}

// resolve returns the path of a program. program may be an absolute path, a path relative to dir, or the name of a file
// in one of the directories. The extension .exe may be missing.
func (m *Machine) resolve(dir, program string, directories []string) (string, bool) {
	var candidates []string
	switch {
	case len(program) > 2 && program[1] == ':':
		candidates = []string{program}
	case strings.Contains(program, `\`):
		candidates = []string{dir + `\` + strings.TrimPrefix(program, `.\`)}
	default:
		for _, d := range directories {
			candidates = append(candidates, d+`\`+program)
		}
	}
	for _, path := range candidates {
		for _, full := range []string{path, path + ".exe"} {
			if info, err := m.volume.stat(full); err == nil && !info.Dir &&
				strings.HasSuffix(strings.ToLower(full), ".exe") {
				return full, true
			}
		}
	}
	return "", false
}

// builtinExit parses the command "exit <n>".
func builtinExit(args []string) (code int, found bool) {
	if len(args) == 0 || !strings.EqualFold(args[0], "exit") {
		return 0, false
	}
	if len(args) > 1 {
		code, _ = strconv.Atoi(args[1])
	}
	return code, true
}

// isPowerShell reports whether a word is the name of PowerShell.
func isPowerShell(word string) bool {
	name := strings.TrimSuffix(strings.ToLower(baseName(word)), ".exe")
	return name == "powershell" || name == "pwsh"
}

// countPowerShell counts a start of PowerShell and waits for the time that the start takes.
func (m *Machine) countPowerShell(ctx context.Context) {
	m.processes.mu.Lock()
	m.processes.shells++
	m.processes.mu.Unlock()
	m.spend(ctx, m.knobs.costs().PowerShellStart)
}
