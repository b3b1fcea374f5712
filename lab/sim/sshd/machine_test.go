package sshd_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/leak"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// diskMachine is a machine whose drive C: is a directory of the test. With it, the tests check that the server works
// with a machine that isn't simulated, such as a Wine prefix.
type diskMachine struct {
	root  string
	shell string
	exec  func(ctx context.Context, command sshd.Command) int

	mu   sync.Mutex
	down chan struct{}
	up   chan struct{}
}

func newMachine(tb testing.TB) *diskMachine {
	tb.Helper()
	m := &diskMachine{root: tb.TempDir(), shell: "cmd.exe", down: make(chan struct{}), up: make(chan struct{})}
	close(m.up)
	if err := os.MkdirAll(m.local(`C:\Users\Administrator`), 0o755); err != nil {
		tb.Fatal(err)
	}
	return m
}

func (m *diskMachine) local(path string) string {
	return filepath.Join(m.root, strings.ReplaceAll(strings.TrimPrefix(path, `C:\`), `\`, "/"))
}

func (m *diskMachine) Hostname() string { return "WIN-A" }

func (m *diskMachine) Account(user string) (sshd.Account, bool) {
	if !strings.EqualFold(user, "Administrator") {
		return sshd.Account{}, false
	}
	return sshd.Account{User: "Administrator", Home: `C:\Users\Administrator`, Shell: m.shell}, true
}

func (m *diskMachine) Files() winos.Files { return m }

func (m *diskMachine) Exec(ctx context.Context, _ sshd.Account, command sshd.Command) int {
	return m.exec(ctx, command)
}

func (m *diskMachine) WaitBoot(ctx context.Context) (<-chan struct{}, error) {
	m.mu.Lock()
	up := m.up
	m.mu.Unlock()
	select {
	case <-up:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.down, nil
}

func (m *diskMachine) powerOff() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up = make(chan struct{})
	close(m.down)
}

func (m *diskMachine) powerOn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down = make(chan struct{})
	close(m.up)
}

// check returns the errors that Windows would return for a path, as far as the tests need them.
func (m *diskMachine) check(path string) error {
	switch {
	case strings.Contains(path, "reserved|name"):
		return winos.ErrInvalidName
	case strings.HasSuffix(path, `\running.exe`):
		return winos.ErrInUse
	case strings.HasSuffix(path, `\secret`):
		return winos.ErrDenied
	}
	return nil
}

func (m *diskMachine) OpenFile(path string, flag int) (sshd.File, error) {
	if err := m.check(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(m.local(path), flag, 0o644)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(path, `\full`) {
		return fullFile{f}, nil
	}
	return f, nil
}

// fullFile is a file on a full disk.
type fullFile struct{ *os.File }

func (fullFile) WriteAt([]byte, int64) (int, error) { return 0, winos.ErrNoSpace }

func (m *diskMachine) Open(path string) (io.ReadCloser, error) { return os.Open(m.local(path)) }

func (m *diskMachine) Create(path string, _ winos.Access) (io.WriteCloser, error) {
	return os.Create(m.local(path))
}

func (m *diskMachine) Rename(from, to string) error {
	if err := m.check(to); err != nil {
		return err
	}
	return os.Rename(m.local(from), m.local(to))
}

func (m *diskMachine) Remove(path string) error {
	if err := m.check(path); err != nil {
		return err
	}
	return os.Remove(m.local(path))
}

func (m *diskMachine) RemoveAll(path string) error { return os.RemoveAll(m.local(path)) }

func (m *diskMachine) Stat(path string) (winos.FileInfo, error) {
	info, err := os.Stat(m.local(path))
	if err != nil {
		return winos.FileInfo{}, err
	}
	return known(info), nil
}

func (m *diskMachine) List(dir string) ([]winos.FileInfo, error) {
	entries, err := os.ReadDir(m.local(dir))
	if err != nil {
		return nil, err
	}
	var all []winos.FileInfo
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		all = append(all, known(info))
	}
	return all, nil
}

func (m *diskMachine) MkdirAll(path string, _ winos.Access) error {
	return os.MkdirAll(m.local(path), 0o755)
}

func (m *diskMachine) Restrict(string) error { return winos.ErrUnsupported }

func known(info fs.FileInfo) winos.FileInfo {
	return winos.FileInfo{Name: info.Name(), Size: info.Size(), Dir: info.IsDir(), ModTime: info.ModTime()}
}

var _ sshd.Machine = (*diskMachine)(nil)

// host is a running server. Its clients have an authorized key.
type host struct {
	*sshd.Server
	machine *diskMachine
	key     ssh.Signer
}

func startHost(tb testing.TB, edit func(m *diskMachine, s *sshd.Settings)) *host {
	tb.Helper()
	m := newMachine(tb)
	settings := sshd.Settings{}
	if edit != nil {
		edit(m, &settings)
	}
	server, err := sshd.Start(tb.Context(),
		sshd.Options{Machine: m, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Settings: settings})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(server.Close)
	h := &host{Server: server, machine: m, key: newKey(tb)}
	if err := sshd.Authorize(m, h.key.PublicKey()); err != nil {
		tb.Fatal(err)
	}
	return h
}

func newKey(tb testing.TB) ssh.Signer {
	tb.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		tb.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		tb.Fatal(err)
	}
	return signer
}

// dialAs logs in as a user. It returns the client, and the host key that the server showed.
func (h *host) dialAs(tb testing.TB, user string) (client *ssh.Client, shown string, err error) {
	tb.Helper()
	client, err = ssh.Dial("tcp", h.Address().String(), &ssh.ClientConfig{
		User: user,
		Auth: []ssh.AuthMethod{ssh.PublicKeys(h.key)},
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			shown = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key)))
			return nil
		},
		HostKeyAlgorithms: []string{ssh.KeyAlgoED25519},
		Timeout:           time.Minute,
	})
	if err == nil {
		tb.Cleanup(func() { _ = client.Close() })
	}
	return client, shown, err
}

func (h *host) dial(tb testing.TB) *ssh.Client {
	tb.Helper()
	client, _, err := h.dialAs(tb, "Administrator")
	if err != nil {
		tb.Fatal(err)
	}
	return client
}

func (h *host) sftp(tb testing.TB, options ...sftp.ClientOption) *sftp.Client {
	tb.Helper()
	client, err := sftp.NewClient(h.dial(tb), options...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// run runs a command and returns its output and its exit code.
func run(tb testing.TB, client *ssh.Client, line, stdin string) (output string, code int) {
	tb.Helper()
	session, err := client.NewSession()
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	if stdin != "" {
		session.Stdin = strings.NewReader(stdin)
	}
	out, err := session.CombinedOutput(line)
	var exit *ssh.ExitError
	switch {
	case errors.As(err, &exit):
		return string(out), exit.ExitStatus()
	case err != nil:
		tb.Fatal(err)
	}
	return string(out), 0
}

// eventually waits until holds returns true. what describes the condition for the error message.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatal("timed out while waiting: " + what)
		}
	}
}

// await waits until a channel is closed. what describes the event for the error message.
func await(tb testing.TB, what string, closed <-chan struct{}) {
	tb.Helper()
	limit := time.NewTimer(time.Minute)
	defer limit.Stop()
	select {
	case <-closed:
	case <-limit.C:
		tb.Fatal("timed out while waiting: " + what)
	}
}

// echo is a program that prints its command line and its input.
func echo(_ context.Context, c sshd.Command) int {
	told, _ := io.ReadAll(c.Stdin)
	_, _ = fmt.Fprintf(c.Stdout, "line=%s stdin=%s", c.Line, told)
	return 0
}
