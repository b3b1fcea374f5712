package sshhost

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

// The connection breaks after every 15 MB. An upload of 32 MiB must succeed. The number of connections must be no
// higher than needed for these bytes and for the bytes that are sent again.
func TestUploadingGoesOnWhereAConnectionBroke(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	content := noise(32 << 20)
	daemon := blob(string(content))
	r.place(t, "daemon-0123456789abcdef.part", strings.Repeat("an older daemon", 1<<20))
	r.Change(func(s *sshd.Settings) { s.Faults.Drop = &sshd.Drop{After: 15 << 20} })
	for attempt := 1; ; attempt++ {
		_, err := r.dial(t).Upload(t.Context(), daemon)
		if err == nil {
			break
		}
		wantReason(t, err, contract.ReasonConnectionLost)
		if attempt == 6 {
			t.Fatal("each connection starts from the beginning")
		}
	}
	name := contract.UploadedName(daemon.Digest)
	if !bytes.Equal(r.content(t, name), content) {
		t.Error("the uploaded program is different")
	}
	if got := r.rpcDir(t); !slices.Equal(got, []string{name}) {
		t.Errorf("the RPC directory has %v", got)
	}
}

// The part from an earlier connection may be damaged. Then the program does not start, or detects the damage, and the
// operator must send it again from the beginning.
func TestAUploadedDaemonThatIsDamagedIsSentAgain(t *testing.T) {
	t.Parallel()
	content := noise(12 << 20)
	for name, does := range map[string]func(ctx context.Context, c *call) int{
		"it does not start": func(context.Context, *call) int { return 1 },
		"it finds it out": func(_ context.Context, c *call) int {
			c.take(t)
			c.answer(t, answerOf(t, contract.PreflightAnswer{Problems: []contract.Problem{
				*contract.NewProblem(contract.ReasonPayloadCorrupt, "another digest")}}))
			return 0
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.does(does)
			daemon := blob(string(content))
			r.place(t, "daemon-"+daemon.Digest[:16]+".part", strings.Repeat("x", 11<<20))
			conn := r.dial(t)
			if sent, err := conn.Upload(t.Context(), daemon); err != nil || sent >= daemon.Size {
				t.Fatalf("sent %d bytes: %v", sent, err)
			}
			var answer contract.Answer[contract.PreflightAnswer]
			_ = callVerb(t.Context(), conn, contract.VerbPreflight, contract.PreflightRequest{}, &answer)
			if sent, err := r.dial(t).Upload(t.Context(), daemon); err != nil || sent != daemon.Size {
				t.Fatalf("sent %d bytes: %v", sent, err)
			}
			if !bytes.Equal(r.content(t, contract.UploadedName(daemon.Digest)), content) {
				t.Error("the uploaded program is different")
			}
		})
	}
}
