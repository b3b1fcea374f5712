package sim

import (
	"context"
	"io"
)

// ExecRequest is one command that somebody runs from afar.
type ExecRequest struct {
	// CommandLine is handed to the shell as it is.
	CommandLine string
	// Shell that interprets it; the machine's default shell if empty.
	Shell Shell
	// Stdin, Stdout and Stderr may be nil.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Exec runs one command in the user's home directory, through a shell as the machine's SSH server does, and gives the shell's exit code.
// Cancelling ctx kills the processes of the command; so does the machine's going down. The exit code is then -1.
func (m *Machine) Exec(ctx context.Context, request ExecRequest) (exitCode int) {
	panic("not built yet")
}
