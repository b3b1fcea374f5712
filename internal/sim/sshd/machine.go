package sshd

import (
	"context"
	"io"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// Machine is what stands behind the server.
type Machine interface {
	// Hostname is the computer's name as Windows writes it; "<hostname>\<user>" is a valid login.
	Hostname() string
	// Home is the home directory of a user who may log in, such as C:\Users\Administrator, and false for anybody else. Letter case does
	// not matter. A repeated call gives the same.
	Home(user string) (dir string, ok bool)
	// Files is the file system, with an administrator's rights. Handles that are io.ReaderAt or io.WriterAt are used as such, which saves a copy.
	Files() winos.Files
	// Exec runs a program to its end and gives its exit code. The error wraps fs.ErrNotExist when there is no such program, and is nil whenever
	// the program ran. Cancelling ctx kills it: Windows' sshd ends what a session started together with the session.
	Exec(ctx context.Context, command Command) (exitCode uint32, err error)
	// Power says whether the machine is up, and gives a channel that is closed when that changes.
	Power() (up bool, changed <-chan struct{})
}

// Command is a program to run.
type Command struct {
	// Args holds the program as it was typed, then its arguments, with the shell's quoting removed.
	Args []string
	// Dir is the working directory: the user's home.
	Dir string
	// User is the login name as Windows writes it, without the host name.
	User string
	// Stdin is at its end from the start when the shell is PowerShell, which does not hand it on.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}
