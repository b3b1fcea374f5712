package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// cmdShell simulates cmd.exe /c.
func cmdShell(ctx context.Context, p *Process, line string) int {
	args := splitCommandLine(line)
	if code, found := builtinExit(args); found {
		return code
	}
	if len(args) == 0 {
		return 0
	}
	if strings.ContainsAny(line, "&|<>^%()\r\n") {
		return notSimulated(p, line)
	}
	// In cmd.exe, a slash begins a switch. So in dir/program, the command is dir.
	program, rest, slash := strings.Cut(args[0], "/")
	if slash {
		args = append([]string{program, "/" + rest}, args[1:]...)
	}
	exe, found := p.Machine.resolve(p.Dir, program, append([]string{p.Dir}, searchPath(p)...))
	switch {
	case isPowerShell(program):
		return p.explicitPowerShell(ctx, program)
	case !found && strings.Contains(program, `\`):
		_, _ = io.WriteString(p.Stderr, "The system cannot find the path specified.\r\n")
		return 1
	case !found:
		_, _ = fmt.Fprintf(p.Stderr, "'%s' is not recognized as an internal or external command,\r\noperable "+
			"program or batch file.\r\n", program)
		return 1
	}
	code, err := p.runChild(ctx, exe, args[1:], p.Stdin, p.Stdout, p.Stderr)
	if err != nil {
		_, _ = io.WriteString(p.Stderr, startFailure(err))
		return 1
	}
	return code
}

// powerShell simulates powershell.exe -c. As on Windows, it reads the whole standard input, so the program that it runs
// gets an empty standard input. It reads the output of the program as text and writes the text line by line. It
// converts every exit code other than 0 to 1.
func powerShell(ctx context.Context, p *Process, line string) int {
	p.Machine.countPowerShell(ctx)
	args := splitCommandLine(line)
	if code, found := builtinExit(args); found {
		return code
	}
	if len(args) == 0 {
		return 0
	}
	if strings.ContainsAny(line, "&|<>$`(){};@'\r\n") {
		return notSimulated(p, line)
	}
	program := strings.ReplaceAll(args[0], "/", `\`)
	exe, found := p.Machine.resolve(p.Dir, program, searchPath(p))
	switch {
	case isPowerShell(program):
		return p.explicitPowerShell(ctx, program)
	case !found:
		_, _ = io.WriteString(p.Stderr, commandNotFound(args[0], line))
		return 1
	}
	lines, done := p.reencode()
	code, err := p.runChild(ctx, exe, args[1:], nil, lines, p.Stderr)
	_ = lines.Close()
	<-done
	if err != nil {
		_, _ = io.WriteString(p.Stderr, startFailure(err))
		return 1
	}
	return min(max(code, -code), 1)
}

// reencode returns a writer. Lines that are written to it go to the standard output of the process and end in CR LF.
func (p *Process) reencode() (w io.WriteCloser, done <-chan struct{}) {
	r, pipe := io.Pipe()
	over := make(chan struct{})
	go func() {
		defer close(over)
		out := bufio.NewReader(r)
		for {
			text, err := out.ReadString('\n')
			if text != "" {
				text = strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r") + "\r\n"
				if _, failed := io.WriteString(p.Stdout, text); failed != nil {
					_ = r.CloseWithError(failed)
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return pipe, over
}

// explicitPowerShell counts a start of PowerShell that a command line requests. It doesn't run the command.
func (p *Process) explicitPowerShell(ctx context.Context, program string) int {
	p.Machine.countPowerShell(ctx)
	return notSimulated(p, program)
}

func notSimulated(p *Process, what string) int {
	_, _ = fmt.Fprintf(p.Stderr, "not simulated: %s\r\n", what)
	return 1
}

func startFailure(err error) string {
	if errors.Is(err, errNotExecutable) {
		return "This version of the program is not compatible with the version of Windows you're running.\r\n"
	}
	return "The process cannot access the file because it is being used by another process.\r\n"
}

func commandNotFound(program, line string) string {
	return strings.ReplaceAll(
		fmt.Sprintf(
			`%[1]s : The term '%[1]s' is not recognized as the name of a cmdlet, function, script file, or operable program. Check the
spelling of the name, or if a path was included, verify that the path is correct and try again.
At line:1 char:1
+ %[2]s
+ %[3]s
    + CategoryInfo          : ObjectNotFound: (%[1]s:String) [], CommandNotFoundException
    + FullyQualifiedErrorId : CommandNotFoundException
`, program, line, strings.Repeat("~", len(program))), "\n", "\r\n")
}

func searchPath(p *Process) []string { return strings.Split(p.Env["Path"], ";") }
