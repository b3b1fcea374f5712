package sim

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// sealer is the data protection of one machine: its key never leaves it.
type sealer struct {
	mu  sync.Mutex
	key [32]byte
}

func newSealer() *sealer {
	s := &sealer{}
	s.renew()
	return s
}

func (s *sealer) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = rand.Read(s.key[:])
}

func (s *sealer) box() (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	block, err := aes.NewCipher(s.key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// ForgetSecrets makes everything that was sealed on this machine unreadable, as sysprep does.
func (m *Machine) ForgetSecrets() { m.sealer.renew() }

type secretsFace struct{ face }

var _ winos.Secrets = secretsFace{}

func (f secretsFace) Seal(ctx context.Context, plain []byte, purpose string) ([]byte, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	box, err := f.m.sealer.box()
	if err != nil {
		return nil, fmt.Errorf("sealing: %w", err)
	}
	return box.Seal(nil, nil, plain, []byte(purpose)), nil
}

func (f secretsFace) Unseal(ctx context.Context, sealed []byte, purpose string) ([]byte, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	box, err := f.m.sealer.box()
	if err != nil {
		return nil, fmt.Errorf("unsealing: %w", err)
	}
	plain, err := box.Open(nil, nil, sealed, []byte(purpose))
	if err != nil {
		return nil, fmt.Errorf("unsealing: %w", winos.ErrNotSealedHere)
	}
	return plain, nil
}

func (f secretsFace) Restrict(path string) error {
	if err := f.p.alive(); err != nil {
		return err
	}
	if !f.m.knobs.isAdmin() {
		return winos.ErrDenied
	}
	return f.m.volume.setAccess(path, winos.AccessAdministrators)
}

// SetAccess changes who may open a file or directory that exists, as somebody with Explorer does.
func (m *Machine) SetAccess(path string, access winos.Access) error {
	return m.volume.setAccess(path, access)
}

// Disown has a directory that exists belong to an ordinary user.
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

// Loosen has C:\ hand down that users may rename and change what is made in it, as on volumes that Windows was not set
// up on.
func (m *Machine) Loosen() {
	m.volume.mu.Lock()
	defer m.volume.mu.Unlock()
	m.volume.root.loose = true
}

// MakeJunction makes a junction to a directory that exists, as an ordinary user may where he may make
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
