package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/rpc"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Serve serves the OS interface of a machine on a stream until the stream ends.
func Serve(host winos.Host, stream io.ReadWriteCloser) error {
	server := rpc.NewServer()
	if err := server.RegisterName(object, &Machine{host: host}); err != nil {
		return fmt.Errorf("preparing to serve the machine: %w", err)
	}
	server.ServeConn(stream)
	return nil
}

// Machine is the RPC server. Package net/rpc calls its methods.
type Machine struct{ host winos.Host }

// answer runs a call with the time limit, and writes its result or failure into the reply.
func answer[T any](reply *Reply[T], work func(ctx context.Context) (T, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	value, err := work(ctx)
	reply.Value, reply.Failure = value, failureOf(err)
	return nil
}

// do works like answer, for calls without a result.
func do(reply *Reply[None], work func(ctx context.Context) error) error {
	return answer(reply, func(ctx context.Context) (None, error) { return none, work(ctx) })
}

// ListServices calls winos.Services.List.
func (m *Machine) ListServices(_ None, reply *Reply[[]string]) error {
	return answer(reply, m.host.Services.List)
}

// GetService calls winos.Services.Get.
func (m *Machine) GetService(name string, reply *Reply[winos.Service]) error {
	return answer(reply, func(ctx context.Context) (winos.Service, error) { return m.host.Services.Get(ctx, name) })
}

// ApplyService calls winos.Services.Apply.
func (m *Machine) ApplyService(config winos.ServiceConfig, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Services.Apply(ctx, config) })
}

// StartService calls winos.Services.Start.
func (m *Machine) StartService(name string, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Services.Start(ctx, name) })
}

// StopService calls winos.Services.Stop.
func (m *Machine) StopService(name string, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Services.Stop(ctx, name) })
}

// Dependants calls winos.Services.Dependants.
func (m *Machine) Dependants(name string, reply *Reply[[]string]) error {
	return answer(reply, func(ctx context.Context) ([]string, error) { return m.host.Services.Dependants(ctx, name) })
}

// DeleteService calls winos.Services.Delete.
func (m *Machine) DeleteService(name string, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Services.Delete(ctx, name) })
}

// DeleteServiceAtStop calls winos.Services.DeleteAtStop.
func (m *Machine) DeleteServiceAtStop(name string, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Services.DeleteAtStop(ctx, name) })
}

// ReadFile returns the content of a file.
func (m *Machine) ReadFile(path string, reply *Reply[[]byte]) error {
	return answer(reply, func(context.Context) ([]byte, error) { return winos.ReadFile(m.host.Files, path) })
}

// CreateFile calls winos.Files.Create and writes the whole content.
func (m *Machine) CreateFile(file Content, reply *Reply[None]) error {
	return do(reply, func(context.Context) error {
		w, err := m.host.Files.Create(file.Path, file.Access)
		if err != nil {
			return err
		}
		if _, err = io.Copy(w, bytes.NewReader(file.Content)); err != nil {
			_ = w.Close()
			return err
		}
		return w.Close()
	})
}

// Rename calls winos.Files.Rename.
func (m *Machine) Rename(change Change, reply *Reply[None]) error {
	return do(reply, func(context.Context) error { return m.host.Files.Rename(change.From, change.To) })
}

// Remove calls winos.Files.Remove.
func (m *Machine) Remove(path string, reply *Reply[None]) error {
	return do(reply, func(context.Context) error { return m.host.Files.Remove(path) })
}

// RemoveAll calls winos.Files.RemoveAll.
func (m *Machine) RemoveAll(path string, reply *Reply[None]) error {
	return do(reply, func(context.Context) error { return m.host.Files.RemoveAll(path) })
}

// Stat calls winos.Files.Stat.
func (m *Machine) Stat(path string, reply *Reply[winos.FileInfo]) error {
	return answer(reply, func(context.Context) (winos.FileInfo, error) { return m.host.Files.Stat(path) })
}

// ListDir calls winos.Files.List.
func (m *Machine) ListDir(dir string, reply *Reply[[]winos.FileInfo]) error {
	return answer(reply, func(context.Context) ([]winos.FileInfo, error) { return m.host.Files.List(dir) })
}

// MkdirAll calls winos.Files.MkdirAll for Change.To.
func (m *Machine) MkdirAll(change Change, reply *Reply[None]) error {
	return do(reply, func(context.Context) error { return m.host.Files.MkdirAll(change.To, change.Access) })
}

// Restrict calls winos.Files.Restrict.
func (m *Machine) Restrict(path string, reply *Reply[None]) error {
	return do(reply, func(context.Context) error { return m.host.Files.Restrict(path) })
}

// Environment calls winos.Environment.All.
func (m *Machine) Environment(_ None, reply *Reply[map[string]string]) error {
	return answer(reply, m.host.Environment.All)
}

// SetVariable calls winos.Environment.Set.
func (m *Machine) SetVariable(v NameValue, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Environment.Set(ctx, v.Name, v.Value) })
}

// UnsetVariable calls winos.Environment.Unset.
func (m *Machine) UnsetVariable(name string, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Environment.Unset(ctx, name) })
}

// ListCertificates calls winos.Trust.List.
func (m *Machine) ListCertificates(_ None, reply *Reply[[][]byte]) error {
	return answer(reply, m.host.Trust.List)
}

// AddCertificate calls winos.Trust.Add.
func (m *Machine) AddCertificate(der []byte, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Trust.Add(ctx, der) })
}

// RemoveCertificate calls winos.Trust.Remove.
func (m *Machine) RemoveCertificate(der []byte, reply *Reply[None]) error {
	return do(reply, func(ctx context.Context) error { return m.host.Trust.Remove(ctx, der) })
}

// Facts calls winos.System.Facts.
func (m *Machine) Facts(_ None, reply *Reply[winos.Facts]) error {
	return answer(reply, m.host.System.Facts)
}

// Listening calls winos.Network.Listening.
func (m *Machine) Listening(_ None, reply *Reply[map[int]string]) error {
	return answer(reply, m.host.Network.Listening)
}
