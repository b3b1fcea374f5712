package remote

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/rpc"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Host is the machine on the other end of a stream. It can be used concurrently.
type Host struct {
	Services    winos.Services
	Files       winos.Files
	Environment winos.Environment
	Trust       winos.Trust

	client *rpc.Client
}

// Dial returns the machine that is served on the other end of a stream. It doesn't wait.
func Dial(stream io.ReadWriteCloser) *Host {
	c := rpc.NewClient(stream)
	return &Host{Services: services{c}, Files: files{c}, Environment: environment{c}, Trust: trust{c}, client: c}
}

// Close closes the stream and ends all calls in progress. It is idempotent.
func (h *Host) Close() { _ = h.client.Close() }

// Facts implements winos.System.Facts.
func (h *Host) Facts(ctx context.Context) (winos.Facts, error) {
	return call[winos.Facts](ctx, h.client, "Facts", none)
}

// Listening implements winos.Network.Listening.
func (h *Host) Listening(ctx context.Context) (map[int]string, error) {
	return call[map[int]string](ctx, h.client, "Listening", none)
}

// call makes one call. If ctx ends, it returns immediately, and the machine continues the call.
func call[R, A any](ctx context.Context, client *rpc.Client, method string, argument A) (result R, err error) {
	reply := &Reply[R]{}
	pending := client.Go(object+"."+method, argument, reply, make(chan *rpc.Call, 1))
	select {
	case <-ctx.Done():
		return result, context.Cause(ctx)
	case <-pending.Done:
	}
	if pending.Error != nil {
		return result, fmt.Errorf("asking the machine's keeper: %w", pending.Error)
	}
	return reply.Value, reply.Failure.err()
}

// tell works like call, for methods without a result.
func tell[A any](ctx context.Context, client *rpc.Client, method string, argument A) error {
	_, err := call[None](ctx, client, method, argument)
	return err
}

type services struct{ client *rpc.Client }

var _ winos.Services = services{}

func (s services) List(ctx context.Context) ([]string, error) {
	return call[[]string](ctx, s.client, "ListServices", none)
}

func (s services) Get(ctx context.Context, name string) (winos.Service, error) {
	return call[winos.Service](ctx, s.client, "GetService", name)
}

func (s services) Apply(ctx context.Context, config winos.ServiceConfig) error {
	return tell(ctx, s.client, "ApplyService", config)
}

func (s services) Start(ctx context.Context, name string) error {
	return tell(ctx, s.client, "StartService", name)
}

func (s services) Stop(ctx context.Context, name string) error {
	return tell(ctx, s.client, "StopService", name)
}

func (s services) Dependants(ctx context.Context, name string) ([]string, error) {
	return call[[]string](ctx, s.client, "Dependants", name)
}

func (s services) Delete(ctx context.Context, name string) error {
	return tell(ctx, s.client, "DeleteService", name)
}

func (s services) DeleteAtStop(ctx context.Context, name string) error {
	return tell(ctx, s.client, "DeleteServiceAtStop", name)
}

// The type files transfers each file in one call, because these files are small. Large files use SFTP.
type files struct{ client *rpc.Client }

var _ winos.Files = files{}

func (f files) Open(path string) (io.ReadCloser, error) {
	content, err := call[[]byte](context.Background(), f.client, "ReadFile", path)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// Create writes the file at Close.
func (f files) Create(path string, access winos.Access) (io.WriteCloser, error) {
	return &writer{client: f.client, file: Content{Path: path, Access: access}}, nil
}

type writer struct {
	bytes.Buffer
	client *rpc.Client
	file   Content
}

func (w *writer) Close() error {
	w.file.Content = w.Bytes()
	return tell(context.Background(), w.client, "CreateFile", w.file)
}

func (f files) Rename(from, to string) error {
	return tell(context.Background(), f.client, "Rename", Change{From: from, To: to})
}

func (f files) Remove(path string) error {
	return tell(context.Background(), f.client, "Remove", path)
}

func (f files) RemoveAll(path string) error {
	return tell(context.Background(), f.client, "RemoveAll", path)
}

func (f files) Stat(path string) (winos.FileInfo, error) {
	return call[winos.FileInfo](context.Background(), f.client, "Stat", path)
}

func (f files) List(dir string) ([]winos.FileInfo, error) {
	return call[[]winos.FileInfo](context.Background(), f.client, "ListDir", dir)
}

func (f files) MkdirAll(path string, access winos.Access) error {
	return tell(context.Background(), f.client, "MkdirAll", Change{To: path, Access: access})
}

func (f files) Restrict(path string) error {
	return tell(context.Background(), f.client, "Restrict", path)
}

type environment struct{ client *rpc.Client }

var _ winos.Environment = environment{}

func (e environment) All(ctx context.Context) (map[string]string, error) {
	return call[map[string]string](ctx, e.client, "Environment", none)
}

func (e environment) Set(ctx context.Context, name, value string) error {
	return tell(ctx, e.client, "SetVariable", NameValue{Name: name, Value: value})
}

func (e environment) Unset(ctx context.Context, name string) error {
	return tell(ctx, e.client, "UnsetVariable", name)
}

type trust struct{ client *rpc.Client }

var _ winos.Trust = trust{}

func (t trust) List(ctx context.Context) ([][]byte, error) {
	return call[[][]byte](ctx, t.client, "ListCertificates", none)
}

func (t trust) Add(ctx context.Context, der []byte) error {
	return tell(ctx, t.client, "AddCertificate", der)
}

func (t trust) Remove(ctx context.Context, der []byte) error {
	return tell(ctx, t.client, "RemoveCertificate", der)
}
