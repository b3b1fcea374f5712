//go:build linux

package wine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"

	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Command is a Windows program to run on a host.
type Command struct {
	// Program is its Windows path, or a name on the search path.
	Program   string
	Arguments []string
	// Dir is the Windows path of the working directory. If empty, it is the user's home directory.
	Dir string
	// Stdin may be read to its end, even if the program reads less. Nil means an empty input.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// HungError reports that a program did not end in time and was killed.
type HungError struct {
	Program string
	Cause   error
}

func (e *HungError) Error() string {
	return fmt.Sprintf("%s did not end in time: %v", e.Program, e.Cause)
}
func (e *HungError) Unwrap() error { return e.Cause }

// Run runs a program and returns its exit code. Cancelling ctx kills the program and its children, and Run returns a
// *HungError.
func (m *Machine) Run(ctx context.Context, command Command) (exitCode int, err error) {
	s := m.session()
	if s == nil {
		return 0, ErrOff
	}
	dir := command.Dir
	if dir == "" {
		dir = Home
	}
	cmd := s.cell.command(ctx, m.Path(dir), append([]string{m.template.wine, command.Program}, command.Arguments...)...)
	cmd.Stdout, cmd.Stderr = command.Stdout, command.Stderr
	if command.Stdin != nil {
		// Don't use cmd.Stdin: Wait would wait for the end of the input even after the program has ended.
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, fmt.Errorf("making a pipe: %w", err)
		}
		go func() {
			_, _ = io.Copy(in, command.Stdin)
			_ = in.Close()
		}()
	}
	err = cmd.Run()
	var ended *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return 0, &HungError{Program: command.Program, Cause: context.Cause(ctx)}
	case errors.As(err, &ended) && ended.Exited():
		return ended.ExitCode(), nil
	case errors.Is(err, exec.ErrWaitDelay):
		return cmd.ProcessState.ExitCode(), nil // a child process is still running and holds the output open
	case err != nil:
		return 0, fmt.Errorf("running %s: %w", command.Program, err)
	}
	return 0, nil
}

// Exec runs a command line through cmd.exe, like an SSH session of a user, and returns the exit code. If the command
// was killed or couldn't run, Exec returns -1.
func (m *Machine) Exec(ctx context.Context, account sshd.Account, command sshd.Command) int {
	code, err := m.Run(ctx, Command{
		Program: "cmd.exe", Arguments: []string{"/d", "/c", command.Line}, Dir: account.Home,
		Stdin: command.Stdin, Stdout: command.Stdout, Stderr: command.Stderr,
	})
	if err != nil {
		return -1
	}
	return code
}

// Account returns the account of the administrator. There are no other users.
func (m *Machine) Account(user string) (sshd.Account, bool) {
	if !strings.EqualFold(user, User) {
		return sshd.Account{}, false
	}
	return sshd.Account{User: User, Home: Home, Shell: "cmd.exe"}, true
}
