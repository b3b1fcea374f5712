package sim

import (
	"cmp"
	"errors"
	"io/fs"
	"strings"
	"sync"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// ErrEnded is the error of calls by a process that has been killed.
var ErrEnded = errors.New("the process has ended")

var (
	errNotEmpty     = errors.New("the directory is not empty")
	errNotDirectory = errors.New("it is not a directory")
)

// volume is drive C:, an NTFS file system in memory. Open files can't be moved or removed. Windows behaves in the same
// way unless a program opens a file with FILE_SHARE_DELETE, which package os doesn't do.
type volume struct {
	now func() time.Time
	// admin reports whether the caller may open files that only administrators may open.
	admin func() bool

	mu   sync.RWMutex
	root *node
	// total is the size of the disk. used is the space that the files in the volume use. foreign is the space that
	// everything else on the disk uses.
	total, used, foreign int64
	faults               map[string]error
	// atBoot lists the paths that the next boot deletes.
	atBoot []string
}

type node struct {
	name     string
	parent   *node
	children map[string]*node // by folded name; nil for a file
	// leads is the target directory of a junction. It is nil for all other nodes.
	leads    *node
	content  content
	modified time.Time
	access   winos.Access
	foreign  bool // an ordinary user created the node
	// loose means that users can rename files that are created in this directory. New directories in it are loose as
	// well.
	loose   bool
	readers int
	writers int
	// exclusive means that no other handle may write while the current writer has the file open.
	exclusive bool
	images    int // number of processes that run this file
}

func (n *node) dir() bool { return n.children != nil }

func (n *node) file() bool { return n.children == nil && n.leads == nil }

// n.through() returns the node that has the children of n: the target of a junction, or else n itself.
func (n *node) through() *node { return cmp.Or(n.leads, n) }

// The method busy reports whether the node or anything below it is open or is running as a program.
func (n *node) busy() bool {
	if n.open() || n.images > 0 {
		return true
	}
	for _, child := range n.children {
		if child.busy() {
			return true
		}
	}
	return false
}

// size returns the size of the node and of everything below it.
func (n *node) size() int64 {
	sum := n.content.size
	for _, child := range n.children {
		sum += child.size()
	}
	return sum
}

func (n *node) open() bool { return n.readers+n.writers > 0 }

func (n *node) info() winos.FileInfo {
	return winos.FileInfo{Name: n.name, Size: n.content.size, Dir: n.dir(), ModTime: n.modified, Access: n.access,
		Foreign: n.foreign || n.through().foreign}
}

func newVolume(total, foreign int64, now func() time.Time, admin func() bool) *volume {
	root := &node{name: `C:\`, children: map[string]*node{}, modified: now()}
	return &volume{now: now, admin: admin, root: root, total: total, foreign: foreign, faults: map[string]error{}}
}

func (v *volume) free() int64 {
	v.mu.RLock()
	defer v.mu.RUnlock()
	return v.freeLocked()
}

func (v *volume) freeLocked() int64 { return max(v.total-v.foreign-v.used, 0) }

func (v *volume) setFree(free int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.foreign = v.total - v.used - free
}

func (v *volume) setFault(path string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err == nil {
		delete(v.faults, fold(path))
		return
	}
	v.faults[fold(path)] = err
}

// find returns the node at a path. It returns fs.ErrNotExist if the path or a directory above it doesn't exist.
func (v *volume) find(path string) (*node, error) {
	parent, name, err := v.parent(path)
	if err != nil {
		return nil, err
	}
	if name == "" {
		return v.root, nil
	}
	child, ok := parent.children[fold(name)]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return child, v.check(child)
}

// parent returns the directory that contains a path, and the last name in the path. For the root, the name is empty.
func (v *volume) parent(path string) (dir *node, name string, err error) {
	drive, names, err := splitPath(path)
	if err != nil {
		return nil, "", err
	}
	if err := v.faults[fold(path)]; err != nil {
		return nil, "", err
	}
	if drive != 'C' {
		return nil, "", fs.ErrNotExist
	}
	if len(names) == 0 {
		return v.root, "", nil
	}
	dir = v.root
	for _, name := range names[:len(names)-1] {
		child, ok := dir.children[fold(name)]
		if !ok || child.file() {
			return nil, "", fs.ErrNotExist
		}
		child = child.through()
		if err := v.check(child); err != nil {
			return nil, "", err
		}
		dir = child
	}
	return dir, names[len(names)-1], nil
}

func (v *volume) check(n *node) error {
	if n.access == winos.AccessAdministrators && !v.admin() {
		return winos.ErrDenied
	}
	return nil
}

func (v *volume) add(dir *node, name string, access winos.Access, isDir bool) *node {
	n := &node{name: name, parent: dir, modified: v.now()}
	switch access {
	case winos.AccessInherit:
		n.foreign, n.loose = dir.loose, dir.loose
	case winos.AccessAdministrators:
		n.access = access
	case winos.AccessUsers: // like inherited rights, but never loose
	}
	if isDir {
		n.children = map[string]*node{}
	}
	dir.children[fold(name)] = n
	dir.modified = n.modified
	return n
}

func (v *volume) detach(n *node) {
	delete(n.parent.children, fold(n.name))
	n.parent.modified = v.now()
}

func (v *volume) stat(path string) (winos.FileInfo, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	n, err := v.find(path)
	if err != nil {
		return winos.FileInfo{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return n.info(), nil
}

func (v *volume) list(path string) ([]winos.FileInfo, error) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	n, err := v.find(path)
	if err == nil && n.file() {
		err = errNotDirectory
	}
	if err != nil {
		return nil, &fs.PathError{Op: "list", Path: path, Err: err}
	}
	n = n.through()
	infos := make([]winos.FileInfo, 0, len(n.children))
	for _, name := range sortedKeys(n.children) {
		infos = append(infos, n.children[name].info())
	}
	return infos, nil
}

func (v *volume) mkdirAll(path string, access winos.Access) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.mkdirAllLocked(path, access); err != nil {
		return &fs.PathError{Op: "mkdir", Path: path, Err: err}
	}
	return nil
}

func (v *volume) mkdirAllLocked(path string, access winos.Access) error {
	drive, names, err := splitPath(path)
	if err != nil {
		return err
	}
	if err := v.faults[fold(path)]; err != nil {
		return err
	}
	if drive != 'C' {
		return fs.ErrNotExist
	}
	dir := v.root
	for i, name := range names {
		child, ok := dir.children[fold(name)]
		switch {
		case !ok:
			child = v.add(dir, name, access, true)
		case child.file() && i == len(names)-1:
			return fs.ErrExist
		case child.file():
			return fs.ErrNotExist
		default:
			child = child.through()
			if err := v.check(child); err != nil {
				return err
			}
		}
		dir = child
	}
	return nil
}

func (v *volume) remove(path string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.removeLocked(path)
}

func (v *volume) removeAll(path string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.removeAllLocked(path)
}

// removeAllLocked removes a path and everything below it, except open files. It removes junctions but not the files in
// their targets.
func (v *volume) removeAllLocked(path string) error {
	var all []error
	if n, err := v.find(path); err == nil && n != v.root {
		for _, name := range sortedKeys(n.children) {
			all = append(all, v.removeAllLocked(path+`\`+n.children[name].name))
		}
	}
	return errors.Join(append(all, v.removeLocked(path))...)
}

func (v *volume) removeLocked(path string) error {
	n, err := v.find(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
	case n == v.root:
		err = winos.ErrDenied
	case len(n.children) > 0:
		err = errNotEmpty
	case n.busy():
		err = winos.ErrInUse
	default:
		v.detach(n)
		v.used -= n.content.size
		return nil
	}
	return &fs.PathError{Op: "remove", Path: path, Err: err}
}

// removeLayer removes a directory even if the rights of its files don't allow this. If a container runs from the
// directory, removeLayer returns winos.ErrInUse.
func (v *volume) removeLayer(path string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, err := v.find(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil && n.busy():
		err = winos.ErrInUse
	case err == nil:
		v.detach(n)
		v.used -= n.size()
		return nil
	}
	return &fs.PathError{Op: "remove", Path: path, Err: err}
}

func (v *volume) removeAtBoot(path string) error {
	if _, err := v.stat(path); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.atBoot = append(v.atBoot, path)
	return nil
}

// boot deletes the paths in atBoot.
func (v *volume) boot() {
	v.mu.Lock()
	paths := v.atBoot
	v.atBoot = nil
	v.mu.Unlock()
	for _, path := range paths {
		_ = v.remove(path)
	}
}

func (v *volume) rename(from, to string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.renameLocked(from, to); err != nil {
		return &fs.PathError{Op: "rename", Path: from + " to " + to, Err: err}
	}
	return nil
}

func (v *volume) renameLocked(from, to string) error {
	n, err := v.find(from)
	if err != nil {
		return err
	}
	dir, name, err := v.parent(to)
	switch {
	case err != nil:
		return err
	case n == v.root || name == "":
		return winos.ErrDenied
	case n.open() || n.dir() && n.busy():
		return winos.ErrInUse
	}
	for up := dir; up != nil; up = up.parent {
		if up == n {
			return fs.ErrInvalid
		}
	}
	if target, ok := dir.children[fold(name)]; ok && target != n {
		switch {
		case !target.file() || !n.file():
			return winos.ErrDenied
		case target.busy():
			return winos.ErrInUse
		}
		if err := v.check(target); err != nil {
			return err
		}
		v.used -= target.content.size
		v.detach(target)
	}
	v.detach(n)
	n.name, n.parent = strings.Clone(name), dir
	dir.children[fold(name)] = n
	return nil
}

// run marks a file as running until release is called. It returns an error if the file doesn't look like an exe.
func (v *volume) run(path string) (release func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, err := v.find(path)
	switch {
	case err != nil:
	case !n.file():
		err = winos.ErrDenied
	case n.writers > 0:
		err = winos.ErrInUse
	case !n.executable():
		err = errNotExecutable
	default:
		n.images++
		return sync.OnceFunc(func() {
			v.mu.Lock()
			defer v.mu.Unlock()
			n.images--
		}), nil
	}
	return nil, &fs.PathError{Op: "run", Path: path, Err: err}
}

var errNotExecutable = errors.New("it is not a valid Win32 application")

func (n *node) executable() bool {
	var magic [2]byte
	_, err := n.content.readAt(magic[:], 0)
	return err == nil && string(magic[:]) == "MZ" || n.content.size == 2 && string(magic[:]) == "MZ"
}
