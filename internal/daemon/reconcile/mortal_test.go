package reconcile_test

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/test/winostest"
)

// errDead is the error of every call after the process was killed. A real process would not see this error.
var errDead = errors.New("the process was killed")

// mortal simulates a process that is killed just before it makes a certain change of the machine. The zero value only
// counts the changes.
type mortal struct {
	// at is the number of the change before which the process is killed. The first change has number 1.
	at int64
	// strike, if set, is called before that change. The process is then not killed.
	strike func()
	// kill ends the process.
	kill func()

	mu    sync.Mutex
	calls int64
	dead  bool
	open  map[*mortalWriter]bool
}

// change makes one change of the machine, unless the process is killed before it.
func (m *mortal) change(make func() error) error {
	m.mu.Lock()
	m.calls++
	mine := m.calls == m.at
	if m.dead || mine && m.strike == nil {
		m.die()
		m.mu.Unlock()
		return errDead
	}
	m.mu.Unlock()
	if mine {
		m.strike()
	}
	return make()
}

// die closes the files that the process has open, as Windows does when a process ends.
func (m *mortal) die() {
	if m.dead {
		return
	}
	m.dead = true
	for w := range m.open {
		_ = w.WriteCloser.Close()
	}
	m.kill()
}

func (m *mortal) host(h winos.Host) winos.Host {
	h.Services, h.Files = mortalServices{h.Services, m}, mortalFiles{h.Files, m}
	h.Environment, h.Trust = mortalEnvironment{h.Environment, m}, mortalTrust{h.Trust, m}
	h.Routes = mortalRoutes{h.Routes, m}
	return h
}

type mortalServices struct {
	winos.Services
	m *mortal
}

func (s mortalServices) Apply(ctx context.Context, config winos.ServiceConfig) error {
	return s.m.change(func() error { return s.Services.Apply(ctx, config) })
}

func (s mortalServices) Start(ctx context.Context, name string) error {
	return s.m.change(func() error { return s.Services.Start(ctx, name) })
}

func (s mortalServices) Stop(ctx context.Context, name string) error {
	return s.m.change(func() error { return s.Services.Stop(ctx, name) })
}

func (s mortalServices) Delete(ctx context.Context, name string) error {
	return s.m.change(func() error { return s.Services.Delete(ctx, name) })
}

func (s mortalServices) DeleteAtStop(ctx context.Context, name string) error {
	return s.m.change(func() error { return s.Services.DeleteAtStop(ctx, name) })
}

type mortalFiles struct {
	winos.Files
	m *mortal
}

func (f mortalFiles) Create(path string, access winos.Access) (w io.WriteCloser, err error) {
	mine := &mortalWriter{m: f.m}
	err = f.m.change(func() error {
		w, err := f.Files.Create(path, access)
		if err != nil {
			return err
		}
		mine.WriteCloser = w
		f.m.mu.Lock()
		defer f.m.mu.Unlock()
		f.m.open[mine] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	return mine, nil
}

func (f mortalFiles) Rename(from, to string) error {
	return f.m.change(func() error { return f.Files.Rename(from, to) })
}

func (f mortalFiles) Remove(path string) error {
	return f.m.change(func() error { return f.Files.Remove(path) })
}

func (f mortalFiles) RemoveAll(path string) error { return winostest.RemoveEach(f, path) }

func (f mortalFiles) MkdirAll(path string, access winos.Access) error {
	return f.m.change(func() error { return f.Files.MkdirAll(path, access) })
}

func (f mortalFiles) Restrict(path string) error {
	return f.m.change(func() error { return f.Files.Restrict(path) })
}

type mortalWriter struct {
	io.WriteCloser
	m *mortal
}

func (w *mortalWriter) Write(p []byte) (n int, err error) {
	err = w.m.change(func() error {
		var err error
		n, err = w.WriteCloser.Write(p)
		return err
	})
	return n, err
}

func (w *mortalWriter) Close() error {
	return w.m.change(func() error {
		w.m.mu.Lock()
		delete(w.m.open, w)
		w.m.mu.Unlock()
		return w.WriteCloser.Close()
	})
}

type mortalEnvironment struct {
	winos.Environment
	m *mortal
}

func (e mortalEnvironment) Set(ctx context.Context, name, value string) error {
	return e.m.change(func() error { return e.Environment.Set(ctx, name, value) })
}

func (e mortalEnvironment) Unset(ctx context.Context, name string) error {
	return e.m.change(func() error { return e.Environment.Unset(ctx, name) })
}

type mortalTrust struct {
	winos.Trust
	m *mortal
}

func (t mortalTrust) Add(ctx context.Context, der []byte) error {
	return t.m.change(func() error { return t.Trust.Add(ctx, der) })
}

func (t mortalTrust) Remove(ctx context.Context, der []byte) error {
	return t.m.change(func() error { return t.Trust.Remove(ctx, der) })
}

type mortalRoutes struct {
	winos.Routes
	m *mortal
}

func (r mortalRoutes) Ensure(ctx context.Context, to netip.Addr) (added bool, err error) {
	err = r.m.change(func() error {
		var err error
		added, err = r.Routes.Ensure(ctx, to)
		return err
	})
	return added, err
}
