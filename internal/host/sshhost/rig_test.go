package sshhost

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/leak"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
	"github.com/windows-nodes/wmco/lab/sim/sshd/simhost"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

// rig is a simulated Windows host with an SSH server, and a daemon that the test defines.
type rig struct {
	*sshd.Server
	machine *sim.Machine
	key     []byte
	daemon  host.Blob

	mu  sync.Mutex
	run func(ctx context.Context, c *call) int
}

// call is one start of this daemon.
type call struct {
	*sim.Process
	Verb, ID string
}

// requestPath and answerPath return the paths of the call's request and answer.
func (c *call) requestPath() string { return c.Dir + `\.wmco\` + contract.RequestName(c.ID) }
func (c *call) answerPath() string  { return c.Dir + `\.wmco\` + contract.AnswerName(c.ID) }

// take reads the request and deletes it, as the daemon does.
func (c *call) take(tb testing.TB) string {
	tb.Helper()
	content, err := winos.ReadFile(c.Host.Files, c.requestPath())
	if err != nil {
		tb.Errorf("reading the request: %v", err)
	}
	if err = c.Host.Files.Remove(c.requestPath()); err != nil {
		tb.Errorf("removing the request: %v", err)
	}
	return string(content)
}

// answer writes an answer.
func (c *call) answer(tb testing.TB, content string) {
	tb.Helper()
	if err := winos.WriteFile(c.Host.Files, c.answerPath(), strings.NewReader(content),
		winos.AccessInherit); err != nil {
		tb.Errorf("writing the answer: %v", err)
	}
}

func newRig(tb testing.TB, change ...func(o *sim.Options)) *rig {
	tb.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		tb.Fatal(err)
	}
	r := &rig{key: pemOf(tb, private), daemon: blob("MZ the daemon of version one")}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		tb.Fatal(err)
	}
	options := sim.Options{
		AuthorizedKeys: ssh.MarshalAuthorizedKey(public),
		Programs:       map[string]sim.Program{payload.NameDaemon: r.program},
	}
	for _, c := range change {
		c(&options)
	}
	if r.machine, err = sim.New(options); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := r.machine.Close(); err != nil {
			tb.Error(err)
		}
	})
	// The test's own context ends before its cleanup, in which the server is stopped.
	r.Server, err = sshd.Start(context.WithoutCancel(tb.Context()),
		sshd.Options{Machine: simhost.Of(r.machine), Listen: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(r.Server.Close)
	return r
}

// does sets what the daemon does from now on.
func (r *rig) does(run func(ctx context.Context, c *call) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run = run
}

// succeeds lets the daemon accept each request from now on, and answer with an empty result.
func (r *rig) succeeds(tb testing.TB) {
	tb.Helper()
	r.does(func(_ context.Context, c *call) int {
		c.take(tb)
		c.answer(tb, answerOf(tb, struct{}{}))
		return 0
	})
}

// ends runs work and closes the connection. It fails the test if this takes longer than all of the operator's
// timeouts.
func ends(tb testing.TB, c host.Conn, work func() error) error {
	tb.Helper()
	done := make(chan error, 1)
	go func() {
		err := work()
		_ = c.Close()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		tb.Fatal("the work does not end")
		return nil
	}
}

func (r *rig) program(ctx context.Context, p *sim.Process) int {
	r.mu.Lock()
	run := r.run
	r.mu.Unlock()
	if len(p.Args) != 4 || p.Args[2] != "--rpc" {
		_, _ = io.WriteString(p.Stderr, "called with other arguments than in the contract")
		return 2
	}
	return run(ctx, &call{Process: p, Verb: p.Args[1], ID: p.Args[3]})
}

// target returns the address and the credentials of the host.
func (r *rig) target() host.Target {
	return host.Target{Address: r.Address().Addr().String(), Port: int(r.Address().Port()), User: r.machine.User(),
		PrivateKey: r.key}
}

// dial connects with short timeouts, so that tests of dead hosts end soon.
func (r *rig) dial(tb testing.TB, change ...func(o *Options)) host.Conn {
	tb.Helper()
	o := Options{}
	for _, c := range change {
		c(&o)
	}
	c, err := New(o).Dial(tb.Context(), r.target())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	})
	return c
}

// uploaded connects and uploads the daemon.
func (r *rig) uploaded(tb testing.TB, change ...func(o *Options)) host.Conn {
	tb.Helper()
	c := r.dial(tb, change...)
	if _, err := c.Upload(tb.Context(), r.daemon); err != nil {
		tb.Fatal(err)
	}
	return c
}

// freeze makes the host silent.
func (r *rig) freeze() { r.Change(func(s *sshd.Settings) { s.Faults.Frozen = true }) }

// rpcDir lists the RPC directory.
func (r *rig) rpcDir(tb testing.TB) []string {
	tb.Helper()
	entries, err := r.machine.Host().Files.List(r.machine.Home() + `\.wmco`)
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

// place writes a file into the RPC directory.
func (r *rig) place(tb testing.TB, name, content string) {
	tb.Helper()
	files := r.machine.Host().Files
	if err := files.MkdirAll(r.machine.Home()+`\.wmco`, winos.AccessInherit); err != nil {
		tb.Fatal(err)
	}
	if err := winos.WriteFile(files, r.machine.Home()+`\.wmco\`+name, strings.NewReader(content),
		winos.AccessInherit); err != nil {
		tb.Fatal(err)
	}
}

// content reads a file of the RPC directory.
func (r *rig) content(tb testing.TB, name string) []byte {
	tb.Helper()
	content, err := winos.ReadFile(r.machine.Host().Files, r.machine.Home()+`\.wmco\`+name)
	if err != nil {
		tb.Fatal(err)
	}
	return content
}

func blob(content string) host.Blob {
	return host.Blob{
		Blob: contract.Blob{Digest: contract.Digest([]byte(content)), Size: int64(len(content))},
		Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil },
	}
}

// pemOf returns a private key in OpenSSH's format.
func pemOf(tb testing.TB, private any) []byte {
	tb.Helper()
	block, err := ssh.MarshalPrivateKey(private, "a comment")
	if err != nil {
		tb.Fatal(err)
	}
	return pem.EncodeToMemory(block)
}

// answerOf returns a correct answer with this result.
func answerOf(tb testing.TB, result any) string {
	tb.Helper()
	content, err := json.Marshal(contract.Answer[any]{Result: result})
	if err != nil {
		tb.Fatal(err)
	}
	return string(content)
}

// wantReason fails the test unless err is a problem with this reason and has none of the secrets.
func wantReason(tb testing.TB, err error, want contract.Reason, secrets ...string) {
	tb.Helper()
	problem, found := contract.AsProblem(err)
	if !found || problem.Reason != want {
		tb.Errorf("returned %v, want reason %s", err, want)
		return
	}
	for _, s := range secrets {
		if strings.Contains(err.Error(), s) {
			tb.Errorf("the error has a secret: %v", err)
		}
	}
	if strings.ContainsAny(err.Error(), "\r\n") {
		tb.Errorf("the error has several lines: %q", err)
	}
}

// eventually waits until a condition holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.After(time.Minute)
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-deadline:
			tb.Fatalf("%s did not happen in time", what)
		case <-ticker.C:
		}
	}
}

// noise returns content that can't be compressed. It is the same every time.
func noise(size int) []byte {
	b := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size]
	for i := range b {
		b[i] ^= byte(i*2654435761>>13) ^ byte(i>>8)
	}
	return b
}

// callVerb calls a verb, as the operator does. Without an answer, it does not change the variable.
func callVerb[T any](ctx context.Context, c host.Conn, verb contract.Verb, request any,
	answer *contract.Answer[T]) error {
	got, err := host.Call[T](ctx, c, verb, request)
	if err == nil {
		*answer = got
	}
	return err
}
