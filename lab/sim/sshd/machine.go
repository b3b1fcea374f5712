package sshd

import (
	"context"
	"io"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Machine is the machine behind the server.
type Machine interface {
	// Hostname is the name of the computer as Windows writes it. "<hostname>\<user>" is a valid login.
	Hostname() string
	// Account returns the account of a user, or false if the user can't log in. Names are case-insensitive.
	Account(user string) (account Account, ok bool)
	// Files returns the file system with the rights of an administrator.
	Files() winos.Files
	// OpenFile opens a file with flags of package os: O_RDONLY, O_WRONLY, O_RDWR, O_CREATE, O_EXCL, O_TRUNC. It returns
	// the same errors as winos.Files.
	OpenFile(path string, flag int) (File, error)
	// Exec runs a command line through the account's shell in its home directory, and returns the exit code of the
	// shell, or -1 if it was killed. Cancelling ctx kills it: sshd on Windows ends the processes of a session with the
	// session.
	Exec(ctx context.Context, account Account, command Command) (exitCode int)
	// WaitBoot returns when the machine is up, with a channel that is closed when it goes down. It returns the error of
	// ctx, or an error if the machine never boots again.
	WaitBoot(ctx context.Context) (down <-chan struct{}, err error)
}

// Account is a user of the machine.
type Account struct {
	// User is the name as Windows writes it.
	User string
	// Home is the home directory, such as C:\Users\Administrator.
	Home string
	// Shell is the exe of the default shell: cmd.exe, or powershell.exe if the registry value DefaultShell is set
	// accordingly.
	Shell string
}

// Command is a command that a client requests.
type Command struct {
	// Line is the command line as sent by the client.
	Line           string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// File is an open file. Reads and writes can be concurrent, at any offset and in any order.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}
