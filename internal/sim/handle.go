package sim

import (
	"io"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

// File is an open file, for an SFTP server: reads and writes at any offset, in any order, also concurrently.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Truncate(size int64) error
	Stat() (winos.FileInfo, error)
}

// OpenFile opens a file with flags of package os (O_RDONLY, O_WRONLY, O_RDWR, O_CREATE, O_EXCL, O_TRUNC). The handle belongs to the boot: it
// is closed when the machine goes down.
func (m *Machine) OpenFile(path string, flag int) (File, error) { panic("not built yet") }

// SFTPPath turns a path of an SFTP client into a path of the machine: "/C:/k/x" and "C:/k/x" into C:\k\x, a relative one into one below
// the user's home; . and .. are resolved. Errors are winos.ErrInvalidName.
func (m *Machine) SFTPPath(name string) (string, error) { panic("not built yet") }

// SFTPName is the other way round: C:\k\x gives /C:/k/x, as OpenSSH for Windows answers realpath.
func SFTPName(path string) string { panic("not built yet") }
