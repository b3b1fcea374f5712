package sshhost

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Hardened servers allow one session per connection. Then file transfers and commands must take turns.
func TestAServerThatAllowsOneSessionIsEnough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Change(func(s *sshd.Settings) { s.MaxSessions = 1 })
	r.succeeds(t)
	conn := r.uploaded(t)
	for range 3 {
		if _, err := conn.Send(t.Context(), "stream", strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		var answer contract.Answer[contract.ReceiveAnswer]
		if err := callVerb(t.Context(), conn, contract.VerbReceive, contract.ReceiveRequest{}, &answer); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.RemoveUpload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if conn.Err() != nil {
		t.Error(conn.Err())
	}
}

// To take turns, the operator ends the SFTP session. A hostile host may keep the session open.
func TestA51_AHostThatNeverEndsItsSessionIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Change(func(s *sshd.Settings) { s.MaxSessions = 1 })
	r.succeeds(t)
	var limit atomic.Int64
	limit.Store(int64(time.Minute))
	conn := r.uploaded(t, func(o *Options) {
		o.CallTimeout = func(contract.Verb) time.Duration { return time.Duration(limit.Load()) }
	})
	again := func() error {
		return callVerb(t.Context(), conn, contract.VerbReceive, contract.ReceiveRequest{},
			new(contract.Answer[contract.ReceiveAnswer]))
	}
	for again() != nil && conn.Err() == nil { // until the operator knows that only one session is allowed
	}
	limit.Store(int64(time.Second))
	r.Change(func(s *sshd.Settings) { s.Faults.HangFiles = true })
	wantReason(t, ends(t, conn, again), contract.ReasonDaemonCallFailed)
}
