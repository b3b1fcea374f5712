package sshd

import (
	"context"
	"io"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Machine is the machine of a server.
type Machine interface {
	// Hostname returns the name of the computer, spelled as Windows shows it. "<hostname>\<user>" is a valid login
	// name.
	Hostname() string
	// Account returns the account of a user. It returns false if the user can't log in. Names are not case-sensitive.
	Account(user string) (account Account, ok bool)
	// Files returns the file system with the rights of an administrator.
	Files() winos.Files
	// OpenFile opens a file. flag consists of flags of package os: O_RDONLY, O_WRONLY, O_RDWR, O_CREATE, O_EXCL and
	// O_TRUNC. OpenFile returns the same errors as winos.Files.
	OpenFile(path string, flag int) (File, error)
	// Exec runs a command line in the shell of an account, in the account's home directory. It returns the exit code of
	// the shell, or -1 if the shell was killed. If ctx is cancelled, the shell and its processes are killed, because
	// OpenSSH for Windows ends the processes of a session when the session ends.
	Exec(ctx context.Context, account Account, command Command) (exitCode int)
	// WaitBoot waits until the machine is up. It returns a channel that is closed when the machine goes down. It
	// returns an error if ctx ends, or if the machine never boots again.
	WaitBoot(ctx context.Context) (down <-chan struct{}, err error)
}

// Account is the account of a user of the machine.
type Account struct {
	// User is the name of the user, spelled as Windows shows it.
	User string
	// Home is the home directory, such as C:\Users\Administrator.
	Home string
	// Shell is the exe of the default shell. It is cmd.exe, unless the registry value DefaultShell is set to
	// powershell.exe.
	Shell string
}

// Command is a command that a client requests.
type Command struct {
	// Line is the command line. It is exactly what the client sent.
	Line           string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// File is an open file. Its methods can be called concurrently, at any offset and in any order.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}
