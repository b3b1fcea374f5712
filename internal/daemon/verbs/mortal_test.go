package verbs_test

import (
	"context"
	"io"
	"net/netip"
	"sync/atomic"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/test/winostest"
)

// mortal simulates a process that may be killed at a call to the operating system.
type mortal struct {
	// at is the number of the call, counted from 1. If it is 0, the process is never killed.
	at int64
	// late lets the call take effect before the process is killed.
	late  bool
	calls atomic.Int64
	kill  func()
	// hold, if set, is called instead of killing the process. ctx ends with the process.
	hold func(ctx context.Context)
	// stopped, if set, is called after the daemon's service was stopped.
	stopped func(ctx context.Context)
	// deleting, if set, is called before a service is deleted.
	deleting func(name string)
}

// step is called at the beginning of each call to the operating system. The function end, which step returns, is called
// at the end of that call.
func (m *mortal) step() (end func()) {
	n := m.calls.Add(1)
	if n == m.at && !m.late {
		m.kill()
	}
	return func() {
		if n == m.at && m.late {
			m.kill()
		}
	}
}

func (m *mortal) host(h winos.Host) winos.Host {
	return winos.Host{
		Services: mortalServices{m, h.Services}, Files: mortalFiles{m, h.Files},
		Environment: mortalEnvironment{m, h.Environment},
		Trust:       mortalTrust{m, h.Trust}, System: mortalSystem{h.System, m}, Network: mortalNetwork{m, h.Network},
		Routes: mortalRoutes{m, h.Routes}, Logs: h.Logs,
		Programs: h.Programs,
	}
}

type mortalServices struct {
	*mortal
	winos.Services
}

func (s mortalServices) List(ctx context.Context) ([]string, error) {
	defer s.step()()
	return s.Services.List(ctx)
}

func (s mortalServices) Get(ctx context.Context, name string) (winos.Service, error) {
	defer s.step()()
	return s.Services.Get(ctx, name)
}

func (s mortalServices) Apply(ctx context.Context, config winos.ServiceConfig) error {
	defer s.step()()
	return s.Services.Apply(ctx, config)
}

func (s mortalServices) Start(ctx context.Context, name string) error {
	defer s.step()()
	return s.Services.Start(ctx, name)
}

func (s mortalServices) Stop(ctx context.Context, name string) error {
	defer s.step()()
	err := s.Services.Stop(ctx, name)
	if s.stopped != nil && name == contract.ServiceDaemon {
		s.stopped(ctx)
	}
	return err
}

func (s mortalServices) Delete(ctx context.Context, name string) error {
	defer s.step()()
	if s.deleting != nil {
		s.deleting(name)
	}
	return s.Services.Delete(ctx, name)
}

func (s mortalServices) DeleteAtStop(ctx context.Context, name string) error {
	defer s.step()()
	return s.Services.DeleteAtStop(ctx, name)
}

type mortalFiles struct {
	*mortal
	winos.Files
}

func (f mortalFiles) Open(path string) (io.ReadCloser, error) {
	defer f.step()()
	return f.Files.Open(path)
}

func (f mortalFiles) Create(path string, access winos.Access) (io.WriteCloser, error) {
	defer f.step()()
	w, err := f.Files.Create(path, access)
	if err != nil {
		return nil, err
	}
	return mortalWriter{f.mortal, w}, nil
}

func (f mortalFiles) Rename(from, to string) error {
	defer f.step()()
	return f.Files.Rename(from, to)
}

func (f mortalFiles) Remove(path string) error {
	defer f.step()()
	return f.Files.Remove(path)
}

func (f mortalFiles) RemoveAll(path string) error { return winostest.RemoveEach(f, path) }

func (f mortalFiles) List(dir string) ([]winos.FileInfo, error) {
	defer f.step()()
	return f.Files.List(dir)
}

func (f mortalFiles) MkdirAll(path string, access winos.Access) error {
	defer f.step()()
	return f.Files.MkdirAll(path, access)
}

func (f mortalFiles) Restrict(path string) error {
	defer f.step()()
	return f.Files.Restrict(path)
}

type mortalWriter struct {
	*mortal
	io.WriteCloser
}

func (w mortalWriter) Write(p []byte) (int, error) {
	defer w.step()()
	return w.WriteCloser.Write(p)
}

func (w mortalWriter) Close() error {
	defer w.step()()
	return w.WriteCloser.Close()
}

type mortalEnvironment struct {
	*mortal
	winos.Environment
}

func (e mortalEnvironment) Set(ctx context.Context, name, value string) error {
	defer e.step()()
	return e.Environment.Set(ctx, name, value)
}

func (e mortalEnvironment) Unset(ctx context.Context, name string) error {
	defer e.step()()
	return e.Environment.Unset(ctx, name)
}

type mortalSystem struct {
	winos.System
	*mortal
}

func (s mortalSystem) SetHostname(ctx context.Context, name string) error {
	defer s.step()()
	return s.System.SetHostname(ctx, name)
}

type mortalNetwork struct {
	*mortal
	winos.Network
}

func (n mortalNetwork) RemoveHNSNetwork(ctx context.Context, name string) error {
	defer n.step()()
	return n.Network.RemoveHNSNetwork(ctx, name)
}

func (n mortalNetwork) NodeIP(ctx context.Context) (netip.Addr, error) {
	defer n.step()()
	return n.Network.NodeIP(ctx)
}

type mortalTrust struct {
	*mortal
	winos.Trust
}

func (t mortalTrust) Add(ctx context.Context, der []byte) error {
	defer t.step()()
	return t.Trust.Add(ctx, der)
}

func (t mortalTrust) Remove(ctx context.Context, der []byte) error {
	defer t.step()()
	return t.Trust.Remove(ctx, der)
}

type mortalRoutes struct {
	*mortal
	winos.Routes
}

func (r mortalRoutes) Ensure(ctx context.Context, to netip.Addr) (bool, error) {
	defer r.step()()
	return r.Routes.Ensure(ctx, to)
}

func (r mortalRoutes) Remove(ctx context.Context, to netip.Addr) error {
	defer r.step()()
	return r.Routes.Remove(ctx, to)
}
