package sshhost

import (
	"context"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// Hardened servers allow one session for each connection: file transfer and commands take turns.
func TestAServerThatAllowsOneSessionIsEnough(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Change(func(s *sshd.Settings) { s.MaxSessions = 1 })
	r.does(func(_ context.Context, c *call) int {
		c.take(t)
		c.answer(t, `{"result":{}}`)
		return 0
	})
	conn := r.uploaded(t)
	for range 3 {
		if _, err := conn.Send(t.Context(), "stream", strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
		var answer contract.Answer[contract.ReceiveAnswer]
		if err := conn.Call(t.Context(), contract.VerbReceive, contract.ReceiveRequest{}, &answer); err != nil {
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
