package sim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// File is an open file. ReadAt and WriteAt can be called concurrently, at any offset and in any order. Read and Write
// use the same position.
type File struct {
	volume         *volume
	node           *node
	path           string
	owner          *owner
	canRead, write bool
	// appends means that each Write writes to the current end of the file.
	appends bool

	position sync.Mutex
	offset   int64

	// The lock of the volume protects the next two fields.
	closed bool
	failed error
}

var (
	_ io.ReaderAt = (*File)(nil)
	_ io.WriterAt = (*File)(nil)
)

// owner stands for the process that has opened a file. When the process ends, Windows closes its files.
type owner struct {
	// The lock of the volume protects both fields.
	files  map[*File]struct{}
	killed bool
}

// end closes the open files of an owner. If kill is true, the owner can't open files afterwards.
func (v *volume) end(o *owner, kill bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o.killed = o.killed || kill
	for f := range o.files {
		f.closeLocked()
	}
}

// writeOnly is the flag to open an existing file and change it in place.
const writeOnly = os.O_WRONLY

// opening describes how to open a file.
type opening struct {
	flag int // flags of package os
	// access is the access to the file if it is created.
	access winos.Access
	// anew means that a new file replaces an existing file.
	anew bool
	// exclusive means that no other handle may write.
	exclusive bool
	owner     *owner
}

func (v *volume) open(path string, how opening) (*File, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f, err := v.openLocked(path, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return f, nil
}

func (v *volume) openLocked(path string, how opening) (*File, error) {
	if how.owner != nil && how.owner.killed {
		return nil, ErrEnded
	}
	n, err := v.find(path)
	if errors.Is(err, fs.ErrNotExist) && how.flag&os.O_CREATE != 0 {
		dir, name, err := v.parent(path)
		if err != nil {
			return nil, err
		}
		return v.handle(v.add(dir, name, how.access, false), path, how), nil
	}
	if err == nil {
		err = how.allowed(n)
	}
	if err != nil {
		return nil, err
	}
	if how.anew {
		v.detach(n)
		v.used -= n.content.size
		return v.handle(v.add(n.parent, n.name, how.access, false), path, how), nil
	}
	if how.writes() && how.flag&os.O_TRUNC != 0 {
		v.used -= n.content.size
		n.content.resize(0)
		n.modified = v.now()
	}
	return v.handle(n, path, how), nil
}

func (how opening) writes() bool { return how.flag&(os.O_WRONLY|os.O_RDWR) != 0 }

// how.allowed(n) returns nil if the existing file n can be opened with these settings.
func (how opening) allowed(n *node) error {
	switch {
	case how.flag&os.O_CREATE != 0 && how.flag&os.O_EXCL != 0:
		return fs.ErrExist
	case !n.file():
		return winos.ErrDenied
	case how.writes() && (n.images > 0 || n.exclusive || how.exclusive && n.writers > 0):
		return winos.ErrInUse
	}
	return nil
}

func (v *volume) handle(n *node, path string, how opening) *File {
	f := &File{volume: v, node: n, path: path, owner: how.owner, canRead: how.flag&os.O_WRONLY == 0,
		write: how.writes()}
	f.appends = how.flag&os.O_APPEND != 0
	if f.write {
		n.writers++
		n.exclusive = how.exclusive
	} else {
		n.readers++
	}
	if f.owner != nil {
		if f.owner.files == nil {
			f.owner.files = map[*File]struct{}{}
		}
		f.owner.files[f] = struct{}{}
	}
	return f
}

// Read implements io.Reader.
func (f *File) Read(p []byte) (int, error) {
	f.position.Lock()
	defer f.position.Unlock()
	n, err := f.ReadAt(p, f.offset)
	f.offset += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	f.position.Lock()
	defer f.position.Unlock()
	f.volume.mu.Lock()
	defer f.volume.mu.Unlock()
	if f.appends {
		f.offset = f.node.content.size
	}
	n, err := f.writeLocked(p, f.offset)
	f.offset += int64(n)
	return n, err
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	f.volume.mu.RLock()
	defer f.volume.mu.RUnlock()
	switch {
	case f.closed:
		return 0, f.wrap("read", fs.ErrClosed)
	case !f.canRead:
		return 0, f.wrap("read", winos.ErrDenied)
	case off < 0:
		return 0, f.wrap("read", fs.ErrInvalid)
	case len(p) == 0:
		return 0, nil
	}
	return f.node.content.readAt(p, off)
}

// WriteAt implements io.WriterAt. If the disk is full, WriteAt writes as many bytes as possible and returns
// winos.ErrNoSpace. In this case, Close also returns the error.
func (f *File) WriteAt(p []byte, off int64) (int, error) {
	f.volume.mu.Lock()
	defer f.volume.mu.Unlock()
	return f.writeLocked(p, off)
}

func (f *File) writeLocked(p []byte, off int64) (int, error) {
	v := f.volume
	switch {
	case f.closed:
		return 0, f.wrap("write", fs.ErrClosed)
	case !f.write:
		return 0, f.wrap("write", winos.ErrDenied)
	case off < 0:
		return 0, f.wrap("write", fs.ErrInvalid)
	case len(p) == 0:
		return 0, nil
	}
	n := f.node
	before := n.content.size
	fits := p
	if room := before + v.freeLocked() - off; int64(len(p)) > room && off+int64(len(p)) > before {
		fits = p[:max(room, 0)]
		f.failed = winos.ErrNoSpace
	}
	if len(fits) > 0 {
		n.content.writeAt(fits, off)
		n.modified = v.now()
		v.used += n.content.size - before
	}
	if len(fits) < len(p) {
		return len(fits), f.wrap("write", winos.ErrNoSpace)
	}
	return len(p), nil
}

// Truncate truncates the file, or extends it with zeros.
func (f *File) Truncate(size int64) error {
	v := f.volume
	v.mu.Lock()
	defer v.mu.Unlock()
	grow := size - f.node.content.size
	switch {
	case f.closed:
		return f.wrap("truncate", fs.ErrClosed)
	case !f.write:
		return f.wrap("truncate", winos.ErrDenied)
	case size < 0:
		return f.wrap("truncate", fs.ErrInvalid)
	case grow > v.freeLocked():
		return f.wrap("truncate", winos.ErrNoSpace)
	}
	f.node.content.resize(size)
	f.node.modified = v.now()
	v.used += grow
	return nil
}

// Stat returns the current state of the file.
func (f *File) Stat() (winos.FileInfo, error) {
	f.volume.mu.RLock()
	defer f.volume.mu.RUnlock()
	if f.closed {
		return winos.FileInfo{}, f.wrap("stat", fs.ErrClosed)
	}
	return f.node.info(), nil
}

// Close closes the file. If a write has failed, Close returns the error of this write. If the file is already closed,
// it returns fs.ErrClosed.
func (f *File) Close() error {
	f.volume.mu.Lock()
	defer f.volume.mu.Unlock()
	if f.closed {
		return f.wrap("close", fs.ErrClosed)
	}
	f.closeLocked()
	if f.failed != nil {
		return f.wrap("close", f.failed)
	}
	return nil
}

func (f *File) closeLocked() {
	if f.closed {
		return
	}
	f.closed = true
	if f.owner != nil {
		delete(f.owner.files, f)
	}
	if !f.write {
		f.node.readers--
		return
	}
	if f.node.writers--; f.node.writers == 0 {
		f.node.exclusive = false
		f.node.content.seal()
	}
}

func (f *File) wrap(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.path, Err: err}
}

// OpenFile opens a file for an SFTP server. flag consists of flags of package os: O_RDONLY, O_WRONLY, O_RDWR, O_CREATE,
// O_EXCL, O_TRUNC and O_APPEND. OpenFile returns the same errors as winos.Files.
func (m *Machine) OpenFile(path string, flag int) (*File, error) {
	return m.volume.open(path, opening{flag: flag})
}
