package sshd

import (
	"context"
	"io"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Machine is what stands behind the server.
type Machine interface {
	// Hostname is the computer's name as Windows writes it; "<hostname>\<user>" is a valid login.
	Hostname() string
	// Account gives the account of a user who may log in, and false for anybody else. Letter case
	// does not matter.
	Account(user string) (account Account, ok bool)
	// Files is the file system, with an administrator's rights.
	Files() winos.Files
	// OpenFile opens a file with flags of package os: O_RDONLY, O_WRONLY, O_RDWR, O_CREATE, O_EXCL,
	// O_TRUNC. Errors are those of winos.Files.
	OpenFile(path string, flag int) (File, error)
	// Exec runs a command line through the account's shell in its home directory, and gives the
	// shell's exit code, or -1 when it was killed. Cancelling ctx kills it: Windows' sshd ends what
	// a session started together with the session.
	Exec(ctx context.Context, account Account, command Command) (exitCode int)
	// WaitBoot returns when the machine is up, at once if it is, with a channel that is closed when
	// it goes down. The error is ctx's, or says that there will be no other boot.
	WaitBoot(ctx context.Context) (down <-chan struct{}, err error)
}

// Account is a user of the machine.
type Account struct {
	// User is the name as Windows writes it.
	User string
	// Home is the home directory, such as C:\Users\Administrator.
	Home string
	// Shell is the exe of the default shell: cmd.exe, or powershell.exe where the registry value
	// DefaultShell says so.
	Shell string
}

// Command is what a client asks to have run.
type Command struct {
	// Line is the command line, as the client sent it.
	Line           string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// File is an open file. Reads and writes come at any offset, in any order, several at once.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}
