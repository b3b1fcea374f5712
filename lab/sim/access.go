package sim

import (
	"errors"
	"io/fs"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func (f fileFace) Restrict(path string) error {
	if err := f.p.alive(); err != nil {
		return err
	}
	if !f.m.knobs.isAdmin() {
		return winos.ErrDenied
	}
	return f.m.volume.setAccess(path, winos.AccessAdministrators)
}

// SetAccess changes the rights of a file or directory, as an administrator can do in Explorer.
func (m *Machine) SetAccess(path string, access winos.Access) error {
	return m.volume.setAccess(path, access)
}

// Disown makes an ordinary user the owner of a directory.
func (m *Machine) Disown(path string) error {
	m.volume.mu.Lock()
	defer m.volume.mu.Unlock()
	n, err := m.volume.find(path)
	if err != nil {
		return &fs.PathError{Op: "disown", Path: path, Err: err}
	}
	n.foreign = true
	return nil
}

// Loosen makes C:\ behave like the root of a volume without Windows: users can then rename and change files and
// directories that are created there.
func (m *Machine) Loosen() {
	m.volume.mu.Lock()
	defer m.volume.mu.Unlock()
	m.volume.root.loose = true
}

// MakeJunction creates a junction to a directory. On Windows, ordinary users can do this wherever they can create
// directories.
func (m *Machine) MakeJunction(path, to string) error {
	v := m.volume
	v.mu.Lock()
	defer v.mu.Unlock()
	target, err := v.find(to)
	if err == nil && !target.dir() {
		err = errNotDirectory
	}
	dir, name, errParent := v.parent(path)
	if err = errors.Join(err, errParent); err == nil && dir.children[fold(name)] != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return &fs.PathError{Op: "junction", Path: path, Err: err}
	}
	n := v.add(dir, name, winos.AccessInherit, false)
	n.leads, n.foreign = target, true
	return nil
}

func (v *volume) setAccess(path string, access winos.Access) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, err := v.find(path)
	if err != nil {
		return &fs.PathError{Op: "restrict", Path: path, Err: err}
	}
	n.access, n.foreign = access, n.foreign && access != winos.AccessAdministrators
	return nil
}
