package sshhost

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// most is the number of bytes that a hostile host may send before the test ends the connection.
const most = 32 << 20

// countedConn is a TCP connection that counts the received bytes. Reads fail after too many bytes.
type countedConn struct {
	net.Conn
	received *atomic.Int64
}

func (c countedConn) Read(p []byte) (int, error) {
	if c.received.Load() > most {
		return 0, errors.New("the test ended the connection")
	}
	n, err := c.Conn.Read(p)
	c.received.Add(int64(n))
	return n, err
}

// countingReceived makes a dialer count the bytes that it receives.
func countingReceived(received *atomic.Int64) func(o *Options) {
	return func(o *Options) {
		o.Network = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			return countedConn{Conn: conn, received: received}, err
		}
	}
}

func TestA51_AHostThatSendsWithoutEndCostsABoundedAmount(t *testing.T) {
	t.Parallel()
	call := func(t *testing.T, c host.Conn) error {
		var answer contract.Answer[contract.PreflightAnswer]
		return callVerb(t.Context(), c, contract.VerbPreflight, contract.PreflightRequest{}, &answer)
	}
	cases := map[string]struct {
		flood    sshd.Flood
		does     func(t *testing.T, c host.Conn) error
		uploaded bool
	}{
		"in the listing of the RPC directory": {flood: sshd.FloodListing, does: func(t *testing.T,
			c host.Conn) error {
			_, err := c.Send(t.Context(), "x", strings.NewReader("x"))
			return err
		}},
		"in folders without end": {flood: sshd.FloodFolders, uploaded: true, does: func(t *testing.T,
			c host.Conn) error {
			return c.RemoveUpload(t.Context())
		}},
		"in the output of a command": {flood: sshd.FloodOutput, does: call, uploaded: true},
		"in a command's errors":      {flood: sshd.FloodErrors, does: call, uploaded: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var received atomic.Int64
			// The operator's timeouts must not end this test.
			patient := func(o *Options) {
				o.SetupTimeout = time.Hour
				o.CallTimeout = func(contract.Verb) time.Duration { return time.Hour }
			}
			conn := r.dial(t, countingReceived(&received), patient)
			if c.uploaded {
				if _, err := conn.Upload(t.Context(), r.daemon); err != nil {
					t.Fatal(err)
				}
			}
			r.Change(func(s *sshd.Settings) { s.Faults.Flood = c.flood })
			wantReason(t, c.does(t, conn), contract.ReasonOutputTooLarge)
			if took := received.Load(); took > 8<<20 {
				t.Errorf("the host could send %d bytes", took)
			}
		})
	}
}

func TestA51_AHostThatSendsRequestsWithoutEndIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Change(func(s *sshd.Settings) { s.Faults.Flood = sshd.FloodRequests })
	var received atomic.Int64
	options := Options{}
	countingReceived(&received)(&options)
	conn, err := New(options).Dial(t.Context(), r.target())
	if err == nil { // the flood begins during the login, so the login may fail
		eventually(t, "the end of the connection", func() bool { return conn.Err() != nil })
		err = errors.Join(conn.Err(), conn.Close())
	}
	wantReason(t, err, contract.ReasonOutputTooLarge)
	if took := received.Load(); took > 8<<20 {
		t.Errorf("the host could send %d bytes", took)
	}
}

func TestA51_AHostThatSendsRequestsOverASessionIsLeft(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		does func(ctx context.Context, c host.Conn) error
		want []contract.Reason
	}{
		"of SFTP": {func(ctx context.Context, c host.Conn) error {
			_, err := c.Send(ctx, "x", strings.NewReader("x"))
			return err
		}, []contract.Reason{"", contract.ReasonOutputTooLarge}}, // the call may be sent before the limit is reached
		"of a command": {func(ctx context.Context, c host.Conn) error {
			return callVerb(ctx, c, contract.VerbPreflight, contract.PreflightRequest{},
				new(contract.Answer[contract.PreflightAnswer]))
		}, []contract.Reason{contract.ReasonDaemonCallFailed, contract.ReasonOutputTooLarge}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.does(hangs)
			conn := r.dial(t)
			if name == "of a command" {
				conn = r.uploaded(t)
			}
			r.Change(func(s *sshd.Settings) { s.Faults.Flood = sshd.FloodSession })
			err := ends(t, conn, func() error { return test.does(t.Context(), conn) })
			var reason contract.Reason
			if problem, is := contract.AsProblem(err); is {
				reason = problem.Reason
			}
			if !slices.Contains(test.want, reason) || reason == "" && err != nil {
				t.Errorf("the call returned %v", err)
			}
		})
	}
}

func TestA51_OthersDoNotNoticeAHostThatFloods(t *testing.T) {
	t.Parallel()
	floods, honest := newRig(t), newRig(t)
	dialer := New(Options{})
	ctx, stop := context.WithCancel(t.Context())
	var attempts sync.WaitGroup
	for range 4 {
		attempts.Go(func() {
			for ctx.Err() == nil {
				conn, err := dialer.Dial(ctx, floods.target())
				if err != nil {
					continue
				}
				_, _ = conn.Send(ctx, "x", strings.NewReader("x")) // another test checks the result
				_ = conn.Close()
			}
		})
	}
	floods.Change(func(s *sshd.Settings) { s.Faults.Flood = sshd.FloodListing })
	defer attempts.Wait()
	defer stop()
	honest.succeeds(t)
	for range 3 {
		conn, err := dialer.Dial(ctx, honest.target())
		if err != nil {
			t.Fatal(err)
		}
		var answer contract.Answer[contract.CleanupAnswer]
		_, uploaded := conn.Upload(ctx, honest.daemon)
		err = errors.Join(uploaded, callVerb(ctx, conn, contract.VerbCleanup, contract.CleanupRequest{}, &answer),
			conn.Close())
		if err != nil || answer.Problem != nil {
			t.Errorf("%v, %v", err, answer.Problem)
		}
	}
}
