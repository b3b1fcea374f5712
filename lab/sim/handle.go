package sim

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// File is an open file. It can be read and written at any offset, in any order, also concurrently;
// Read and Write have one position together.
type File struct {
	volume         *volume
	node           *node
	path           string
	owner          *owner
	canRead, write bool
	// appends says that each Write goes to the end, wherever that is by then.
	appends bool

	position sync.Mutex
	offset   int64

	// Under the volume's lock.
	closed bool
	failed error
}

var (
	_ io.ReaderAt = (*File)(nil)
	_ io.WriterAt = (*File)(nil)
)

// owner is what open files belong to: a process. Windows closes them when it ends.
type owner struct {
	// Under the volume's lock.
	files  map[*File]struct{}
	killed bool
}

// end closes what is still open. After a kill nothing can be opened any more.
func (v *volume) end(o *owner, kill bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	o.killed = o.killed || kill
	for f := range o.files {
		f.closeLocked()
	}
}

// writeOnly is how a file is opened that is to be changed where it is.
const writeOnly = os.O_WRONLY

// opening says how to open a file.
type opening struct {
	flag int // of package os
	// access is for a file that is created.
	access winos.Access
	// anew makes another file in the place of one that exists.
	anew bool
	// exclusive keeps others from writing meanwhile.
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

// allowed says whether a file that exists can be opened so.
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

// Read is io.Reader.
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

// Write is io.Writer.
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

// ReadAt is io.ReaderAt.
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

// WriteAt is io.WriterAt. It writes what the disk has room for, and the rest is winos.ErrNoSpace;
// Close reports that again.
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

// Truncate cuts, or extends by zeros.
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

// Stat describes the file as it is now.
func (f *File) Stat() (winos.FileInfo, error) {
	f.volume.mu.RLock()
	defer f.volume.mu.RUnlock()
	if f.closed {
		return winos.FileInfo{}, f.wrap("stat", fs.ErrClosed)
	}
	return f.node.info(), nil
}

// Close closes it, and says what could not be written. Repeating it is fs.ErrClosed.
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

// OpenFile opens a file with flags of package os (O_RDONLY, O_WRONLY, O_RDWR, O_CREATE, O_EXCL,
// O_TRUNC, O_APPEND), for an SFTP server. Errors are those of winos.Files.
func (m *Machine) OpenFile(path string, flag int) (*File, error) {
	return m.volume.open(path, opening{flag: flag})
}
