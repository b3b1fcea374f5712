package sshhost

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func TestUploadSendsTheDaemonOnceAndNoOtherOneStays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	name := contract.UploadedName(r.daemon.Digest)
	r.place(t, "wicd-0123456789abcdef.exe", "MZ an older daemon")
	r.place(t, "something-else.txt", "of the user")
	for _, want := range []int64{r.daemon.Size, 0} {
		sent, err := r.dial(t).Upload(t.Context(), r.daemon)
		if err != nil || sent != want {
			t.Fatalf("sent %d bytes, want %d: %v", sent, want, err)
		}
	}
	if got := r.rpcDir(t); !slices.Equal(got, []string{"something-else.txt", name}) &&
		!slices.Equal(got, []string{name, "something-else.txt"}) {
		t.Errorf("the RPC directory has %v", got)
	}
	if got := string(r.content(t, name)); got != "MZ the daemon of version one" {
		t.Errorf("uploaded is %q", got)
	}
}

func TestUploadReplacesADaemonOfAnotherSize(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.place(t, contract.UploadedName(r.daemon.Digest), "MZ trunc")
	conn := r.dial(t)
	if sent, err := conn.Upload(t.Context(), r.daemon); err != nil || sent != r.daemon.Size {
		t.Errorf("sent %d bytes: %v", sent, err)
	}
}

// A host that answers keepalives keeps its connection. It must still list its files in time.
func TestA51_AHostThatNeverListsItsDaemonsIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := clocktesting.NewFakeClock(time.Now()) // the clock does not advance, so silence does not end the connection
	opened := r.dial(t, func(o *Options) { o.Clock = now })
	if _, err := opened.Send(t.Context(), "x", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	c, ok := opened.(*conn)
	if !ok {
		t.Fatalf("the connection is a %T", opened)
	}
	c.options.SetupTimeout = 50 * time.Millisecond
	r.freeze()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := c.Upload(ctx, r.daemon)
	wantReason(t, err, contract.ReasonConnectionLost)
	if ctx.Err() != nil {
		t.Error("only the test ended the connection")
	}
}

func TestUploadRefusesWhatIsNoDaemon(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.dial(t)
	sad := errors.New("no disk")
	gone, evil := r.daemon, r.daemon
	gone.Open = func() (io.ReadCloser, error) { return nil, sad }
	evil.Digest = `..\..\x & calc`
	if _, err := conn.Upload(t.Context(), gone); !errors.Is(err, sad) {
		t.Errorf("a blob that can't be opened returns %v", err)
	}
	if _, err := conn.Upload(t.Context(), evil); err == nil {
		t.Error("a digest that is a path was uploaded")
	}
	if conn.Err() != nil {
		t.Errorf("the connection was lost: %v", conn.Err())
	}
}

func TestSendReplacesWhatWasThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.dial(t)
	for _, content := range [][]byte{noise(3 << 20), []byte("short"), nil, noise(100_000)} {
		// The size of this content is unknown, like the size of a payload that is still being packed.
		sent, err := conn.Send(t.Context(), "payload.tar.zst", io.MultiReader(bytes.NewReader(content)))
		if err != nil || sent != int64(len(content)) {
			t.Fatalf("sent %d of %d bytes: %v", sent, len(content), err)
		}
		if got := r.content(t, "payload.tar.zst"); !bytes.Equal(got, content) {
			t.Errorf("%d bytes arrived as %d different bytes", len(content), len(got))
		}
	}
	if got := r.rpcDir(t); !slices.Equal(got, []string{"payload.tar.zst"}) {
		t.Errorf("the RPC directory has %v", got)
	}
	want := sshd.Counters{Connections: 1, Authenticated: 1, SFTPSessions: 1}
	if diff := cmp.Diff(want, counted(r)); diff != "" {
		t.Errorf("the counters are different:\n%s", diff)
	}
}

// counted returns the counters, without bytes and open connections.
func counted(r *rig) sshd.Counters {
	c := r.Counters()
	c.BytesIn, c.BytesOut, c.OpenConnections = 0, 0, 0
	return c
}

func TestSendKeepsToTheRPCDirectory(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.dial(t)
	for _, name := range []string{"", ".", "..", "../x", `..\x`, "a/b", `C:\x`, "a:b", "nul ", "a b", "x.",
		strings.Repeat("x", 200), "é"} {
		if _, err := conn.Send(t.Context(), name, strings.NewReader("x")); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

// closable is content that records that it was closed.
type closable struct {
	io.Reader
	closed chan struct{}
}

func (c closable) Close() error { close(c.closed); return nil }

func TestSendClosesItsContent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.dial(t)
	sad := errors.New("the packing went wrong")
	cases := map[string]struct {
		reader io.Reader
		name   string
		want   error
	}{
		"when all is sent":        {strings.NewReader("x"), "x", nil},
		"when the content breaks": {io.MultiReader(strings.NewReader("x"), iotest.ErrReader(sad)), "x", sad},
		"when it ends like a network": {io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF)),
			"x", io.ErrUnexpectedEOF},
	}
	for name, c := range cases {
		content := closable{c.reader, make(chan struct{})}
		_, err := conn.Send(t.Context(), c.name, content)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s the error is %v", name, err)
		}
		select {
		case <-content.closed:
		default:
			t.Errorf("%s the content was not closed", name)
		}
		if conn.Err() != nil {
			t.Fatalf("%s the connection was lost", name)
		}
	}
	if got := r.rpcDir(t); !slices.Equal(got, []string{"x"}) {
		t.Errorf("the RPC directory has %v", got)
	}
}

// A broken connection is noticed, the received part is kept, and the next connection sends the rest.
func TestSendResumesWhatBroke(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	content := noise(32 << 20)
	first := r.dial(t)
	r.Change(func(s *sshd.Settings) { s.Faults.Drop = &sshd.Drop{After: 20 << 20, Times: 1} })
	_, err := first.Send(t.Context(), "payload.tar.zst", bytes.NewReader(content))
	wantReason(t, err, contract.ReasonConnectionLost)
	wantReason(t, first.Err(), contract.ReasonConnectionLost)
	if _, err = first.Send(t.Context(), "payload.tar.zst", bytes.NewReader(content)); err == nil {
		t.Error("a lost connection still sends")
	}
	sent, err := r.dial(t).Send(t.Context(), "payload.tar.zst", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if sent > 20<<20 {
		t.Errorf("%d MiB were sent again, although most had arrived", sent>>20)
	}
	if !bytes.Equal(r.content(t, "payload.tar.zst"), content) {
		t.Error("the resumed file is different")
	}
}

// The content that is sent in the second connection may be shorter or different. The resulting file must still be
// correct.
func TestSendResumesWithOtherContent(t *testing.T) {
	t.Parallel()
	old := noise(12 << 20)
	cases := map[string]struct{ content, want []byte }{
		"a little shorter":        {old[:11<<20], old[:11<<20]},
		"shorter than what stays": {old[:1<<20], old[:1<<20]},
		"empty":                   {nil, nil},
		"other and much longer": {bytes.Repeat([]byte("y"), 16<<20),
			append(bytes.Clone(old[:8<<20]), bytes.Repeat([]byte("y"), 8<<20)...)},
		"just where it broke": {old[:8<<20], old[:8<<20]},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.place(t, "payload.tar.zst.part", string(old))
			if _, err := r.dial(t).Send(t.Context(), "payload.tar.zst", bytes.NewReader(c.content)); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(r.content(t, "payload.tar.zst"), c.want) {
				t.Error("the file is different")
			}
		})
	}
}

// feed is content that never ends and pauses, like a slow packing.
func feed(tb testing.TB) io.Reader {
	tb.Helper()
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.Write(noise(1 << 20)) // after this, nothing is written
	}()
	tb.Cleanup(func() { <-done })
	return r
}

func TestSendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.dial(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := conn.Send(ctx, "payload.tar.zst", feed(t))
		done <- err
	}()
	eventually(t, "the first mebibyte", func() bool { return r.Counters().BytesIn > 1<<20 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("returned %v, want the cancellation", err)
	}
	if conn.Err() == nil {
		t.Error("a closed connection looks usable")
	}
}

func TestSendEndsWhenTheConnectionIsClosed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.dial(t)
	done := make(chan error)
	go func() {
		_, err := conn.Send(t.Context(), "payload.tar.zst", feed(t))
		done <- err
	}()
	eventually(t, "the first mebibyte", func() bool { return r.Counters().BytesIn > 1<<20 })
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	wantReason(t, <-done, contract.ReasonConnectionLost)
	if err := conn.Close(); err != nil {
		t.Errorf("closing a second time: %v", err)
	}
}

func TestSendSaysThatTheDiskIsFull(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.dial(t)
	r.machine.SetDiskFree(4 << 20)
	_, err := conn.Send(t.Context(), "payload.tar.zst", bytes.NewReader(noise(8<<20)))
	wantReason(t, err, contract.ReasonFileFailed)
	if conn.Err() != nil {
		t.Errorf("the connection was lost: %v", conn.Err())
	}
	if got := r.rpcDir(t); len(got) != 0 {
		t.Errorf("the RPC directory has %v, which wastes disk space", got)
	}
}

func TestWhatBrokenConnectionsLeftIsTidiedUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, name := range []string{"00.req.json", "00.ans.json", "01.req.json.part", "01.ans.json.part",
		"wicd-00.exe.part", "payload.tar.zst.part", "notes.json"} {
		r.place(t, name, "left")
	}
	if _, err := r.dial(t).Send(t.Context(), "x", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	got := r.rpcDir(t)
	slices.Sort(got)
	if want := []string{"notes.json", "payload.tar.zst.part", "x"}; !slices.Equal(got, want) {
		t.Errorf("the RPC directory has %v, want %v", got, want)
	}
}

func TestRemoveUploadRemovesEverything(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.uploaded(t)
	if _, err := conn.Send(t.Context(), "payload.tar.zst", strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := conn.RemoveUpload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.machine.Host().Files.Stat(r.machine.Home() + `\.wmco`); err == nil {
		t.Error("the RPC directory still exists")
	}
	if err := callVerb(t.Context(), conn, contract.VerbPreflight, struct{}{}, new(contract.Answer[int])); err == nil {
		t.Error("a deleted daemon was called")
	}
	// The same connection can upload the daemon again.
	if _, err := conn.Upload(t.Context(), r.daemon); err != nil {
		t.Errorf("uploading again: %v", err)
	}
}

// slowConn is a TCP connection with a limited number of bytes per second of its clock, once a limit is set.
type slowConn struct {
	net.Conn
	clock *clocktesting.FakeClock
	rate  *atomic.Int64
}

func (c slowConn) Write(p []byte) (int, error) {
	if rate := c.rate.Load(); rate > 0 {
		c.clock.Step(time.Duration(len(p)) * time.Second / time.Duration(rate))
	}
	return c.Conn.Write(p)
}

func TestA51_AHostThatTakesATransferInDropsIsLeft(t *testing.T) {
	t.Parallel()
	send := func(ctx context.Context, c host.Conn, content []byte) error {
		_, err := c.Send(ctx, "payload.tar.zst", io.MultiReader(bytes.NewReader(content)))
		return err
	}
	upload := func(ctx context.Context, c host.Conn, content []byte) error {
		_, err := c.Upload(ctx, blob(string(content)))
		return err
	}
	for name, test := range map[string]struct {
		does func(ctx context.Context, c host.Conn, content []byte) error
		rate int64
		left bool
	}{
		"the payload in drops":         {send, 1 << 10, true},
		"the daemon in drops":          {upload, 1 << 10, true},
		"the payload over a slow line": {send, 64 << 10, false},
		"the daemon over a slow line":  {upload, 64 << 10, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			clock, rate := clocktesting.NewFakeClock(time.Now()), new(atomic.Int64)
			conn := r.dial(t, func(o *Options) {
				o.Clock, o.KeepaliveInterval = clock, 1000*time.Hour // silence must not end this connection
				o.Network = func(ctx context.Context, network, address string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, address)
					return slowConn{c, clock, rate}, err
				}
			})
			if err := send(t.Context(), conn, nil); err != nil {
				t.Fatal(err)
			}
			rate.Store(test.rate)
			err := test.does(t.Context(), conn, noise(8<<20))
			if !test.left {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantReason(t, err, contract.ReasonConnectionLost)
			if err != nil && (!strings.Contains(err.Error(), r.Address().String()) ||
				!strings.Contains(err.Error(), "less than 32 KiB")) {
				t.Errorf("the error is %v", err)
			}
			wantReason(t, conn.Err(), contract.ReasonConnectionLost)
		})
	}
}

// takes simulates a transfer with this rate in bytes per second, and reports whether the transfer is too slow.
func takes(p *pace, clock *clocktesting.FakeClock, size, rate int) (late bool) {
	for taken := 0; taken < size; {
		clock.Step(time.Second)
		n, err := io.ReadFull(p, make([]byte, rate))
		if taken += n; errors.Is(err, errSlow) {
			return true
		}
	}
	return false
}

// A payload may have 300 MB, and the line to a host may be slow. So only a very low rate is an error.
func TestAHostIsAskedForNoMoreThanALeastRate(t *testing.T) {
	t.Parallel()
	const size, slow = 300_000_000, 64 << 10
	for name, test := range map[string]struct {
		before     time.Duration
		size, rate int
		late       bool
	}{
		"nothing for a moment":             {before: leastTime - 2*time.Second, size: 1, rate: slow},
		"nothing for too long":             {before: leastTime, size: 1, rate: slow, late: true},
		"a payload over a slow line":       {size: size, rate: slow},
		"a payload at half of such a rate": {size: size, rate: slow/2 - 1, late: true},
		"much at once, then nothing":       {size: size, rate: size},
	} {
		clock := clocktesting.NewFakeClock(time.Unix(0, 0))
		p := newPace(endless{}, clock, func() {})
		clock.Step(test.before)
		if late := takes(p, clock, test.size, test.rate); late != test.late {
			t.Errorf("%s: late %v", name, late)
		}
		if clock.Step(leastTime); !test.late && !takes(p, clock, 1, 1) {
			t.Errorf("%s: the rest may take longer than %s", name, leastTime)
		}
	}
}

// endless is content without end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// slowReader is content that arrives slowly at the operator.
type slowReader struct{ clock *clocktesting.FakeClock }

func (r slowReader) Read(p []byte) (int, error) {
	r.clock.Step(time.Hour)
	return len(p), nil
}

func TestAHostDoesNotAnswerForSlowContent(t *testing.T) {
	t.Parallel()
	clock := clocktesting.NewFakeClock(time.Unix(0, 0))
	if takes(newPace(slowReader{clock}, clock, func() {}), clock, 60*leastRate, leastRate) {
		t.Error("the host is blamed for the slow content")
	}
}
