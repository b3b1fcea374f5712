package sshd

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/pkg/sftp"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// The method files serves SFTP until the client ends the session.
func (s *session) files(ctx context.Context) {
	s.server.network.counters.sessions.Add(1)
	f := face{
		machine: s.server.machine,
		files:   s.server.machine.Files(),
		network: &s.server.network,
		home:    sftpPath(s.account.Home),
	}
	server := sftp.NewRequestServer(s.channel, sftp.Handlers{FileGet: f, FilePut: f, FileCmd: f, FileList: f},
		sftp.WithStartDirectory(f.home),
		// Without the allocator, fifty concurrent uploads run at a third of the speed because of garbage collection
		// (measured 2026-11).
		sftp.WithRSAllocator())
	_ = server.Serve()
	if s.server.network.settings().Faults.HangFiles {
		<-ctx.Done()
	}
	s.exit(0)
}

// face makes the machine's file system available over SFTP. Its errors contain only codes of SFTP, like the errors of
// OpenSSH.
type face struct {
	machine Machine
	files   winos.Files
	network *network
	home    string
}

// translate returns the code of SFTP that OpenSSH for Windows uses for an error. OpenSSH has no separate code for a
// sharing violation, a full disk, or a name that is invalid on Windows. It reports these as a general failure.
func translate(err error) error {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return err
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, winos.ErrNotFound):
		return sftp.ErrSSHFxNoSuchFile
	case errors.Is(err, winos.ErrDenied):
		return sftp.ErrSSHFxPermissionDenied
	case errors.Is(err, winos.ErrUnsupported):
		return sftp.ErrSSHFxOpUnsupported
	}
	return sftp.ErrSSHFxFailure
}

// occupied returns the code of SFTP for an operation on the exe of a running process. Windows denies the operation. For
// other operations on files that are in use, Windows reports a sharing violation.
func occupied(err error) error {
	if errors.Is(err, winos.ErrInUse) {
		return sftp.ErrSSHFxPermissionDenied
	}
	return translate(err)
}

// Filecmd changes names, directories and attributes.
func (f face) Filecmd(r *sftp.Request) error {
	path := windowsPath(r.Filepath)
	if f.network.settings().Faults.Flood == FloodFolders && r.Method == "Remove" {
		return sftp.ErrSSHFxFailure // a file must not be treated as a folder
	}
	switch r.Method {
	case "Rename":
		return f.rename(path, windowsPath(r.Target))
	case "Remove", "Rmdir":
		info, err := f.files.Stat(path)
		if err != nil {
			return translate(err)
		}
		if info.Dir != (r.Method == "Rmdir") {
			return sftp.ErrSSHFxFailure
		}
		return occupied(f.files.Remove(path))
	case "Mkdir":
		return f.mkdir(path)
	case "Setstat":
		return f.setstat(path, r)
	}
	return sftp.ErrSSHFxOpUnsupported
}

// setstat changes the size of a file. It ignores modes and times.
func (f face) setstat(path string, r *sftp.Request) error {
	if !r.AttrFlags().Size {
		_, err := f.files.Stat(path)
		return translate(err)
	}
	file, err := f.machine.OpenFile(path, os.O_WRONLY)
	if err != nil {
		return translate(err)
	}
	return translate(errors.Join(file.Truncate(int64(r.Attributes().Size)), file.Close()))
}

// rename renames a file. Like the rename of SFTP, it refuses to replace an existing file.
func (f face) rename(from, to string) error {
	_, err := f.files.Stat(to)
	if err == nil {
		return sftp.ErrSSHFxFailure
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return translate(err)
	}
	return occupied(f.files.Rename(from, to))
}

// PosixRename renames a file. It replaces an existing file.
func (f face) PosixRename(r *sftp.Request) error {
	return occupied(f.files.Rename(windowsPath(r.Filepath), windowsPath(r.Target)))
}

// mkdir creates a directory. The parent of the directory must exist.
func (f face) mkdir(path string) error {
	switch exists, err := winos.Exists(f.files, path); {
	case err != nil:
		return translate(err)
	case exists:
		return sftp.ErrSSHFxFailure
	}
	parent, err := f.files.Stat(directory(path))
	if err != nil {
		return translate(err)
	}
	if !parent.Dir {
		return sftp.ErrSSHFxNoSuchFile
	}
	return translate(f.files.MkdirAll(path, winos.AccessInherit))
}

// RealPath returns the absolute path for a path. Clients use it with "." to find the home directory.
func (f face) RealPath(p string) (string, error) {
	if p == "" || p[0] != '/' {
		p = f.home + "/" + p
	}
	return sftpPath(windowsPath(p)), nil
}

// Filelist lists a directory, or describes one file.
func (f face) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	path := windowsPath(r.Filepath)
	flooding := f.network.settings().Faults.Flood
	switch {
	case flooding == FloodListing && r.Method == "List":
		return endless{}, nil
	case flooding == FloodFolders && r.Method != "Readlink":
		return nested(), nil
	case r.Method == "Readlink":
		return nil, sftp.ErrSSHFxOpUnsupported
	case path == "" && r.Method == "List":
		return listing{entry{winos.FileInfo{Name: "C:", Dir: true}}}, nil
	case path == "":
		return listing{entry{winos.FileInfo{Name: "/", Dir: true}}}, nil
	case r.Method == "List":
		infos, err := f.files.List(path)
		if err != nil {
			return nil, translate(err)
		}
		all := make(listing, 0, len(infos))
		for _, info := range infos {
			all = append(all, entry{info})
		}
		return all, nil
	}
	info, err := f.files.Stat(path)
	if err != nil {
		return nil, translate(err)
	}
	return listing{entry{info}}, nil
}

// directory returns the parent directory of a Windows path.
func directory(path string) string {
	cut := strings.LastIndexByte(path, '\\')
	if cut < 0 {
		return path
	}
	if cut == len("C:") {
		cut++
	}
	return path[:cut]
}

// listing contains the entries of a directory.
type listing []os.FileInfo

// ListAt copies entries, beginning with the entry at offset.
func (l listing) ListAt(to []os.FileInfo, offset int64) (int, error) {
	if offset >= int64(len(l)) {
		return 0, io.EOF
	}
	n := copy(to, l[offset:])
	if n < len(to) {
		return n, io.EOF
	}
	return n, nil
}

// entry makes a file's description available as os.FileInfo. Windows has no file modes, so entry returns the modes that
// OpenSSH for Windows reports.
type entry struct{ info winos.FileInfo }

func (e entry) Name() string       { return e.info.Name }
func (e entry) Size() int64        { return e.info.Size }
func (e entry) ModTime() time.Time { return e.info.ModTime }
func (e entry) IsDir() bool        { return e.info.Dir }
func (e entry) Sys() any           { return nil }
func (e entry) Mode() fs.FileMode {
	if e.info.Dir {
		return fs.ModeDir | 0o777
	}
	return 0o666
}

var (
	_ sftp.PosixRenameFileCmder = face{}
	_ sftp.RealPathFileLister   = face{}
	_ sftp.OpenFileWriter       = face{}
	_ sftp.FileReader           = face{}
)
