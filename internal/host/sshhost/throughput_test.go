package sshhost

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// BenchmarkSend measures one stream over lines with different delays, with server and client in one process. The
// delay must cost little: with one packet per round trip, the rate would be 0.4 MiB/s at 20 ms.
func BenchmarkSend(b *testing.B) {
	content := noise(64 << 20)
	for _, trip := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond, 80 * time.Millisecond} {
		b.Run(fmt.Sprintf("trip=%s", trip), func(b *testing.B) {
			r := newRig(b)
			r.Change(func(s *sshd.Settings) { s.Latency = trip / 2 })
			conn := r.dial(b)
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				if _, err := conn.Send(b.Context(), "payload.tar.zst",
					io.MultiReader(bytes.NewReader(content))); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCall measures one call of a daemon that does nothing, over lines with different delays. It shows how many
// round trips a call needs.
func BenchmarkCall(b *testing.B) {
	for _, trip := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		b.Run(fmt.Sprintf("trip=%s", trip), func(b *testing.B) {
			r := newRig(b)
			r.does(func(_ context.Context, c *call) int { c.take(b); c.answer(b, `{"result":1}`); return 0 })
			r.Change(func(s *sshd.Settings) { s.Latency = trip / 2 })
			conn := r.uploaded(b)
			for b.Loop() {
				if err := callVerb(b.Context(), conn, contract.VerbPreflight, struct{}{},
					new(contract.Answer[int])); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
