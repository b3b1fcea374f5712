package apply_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// If something was recorded while the host's clock was ahead, the record must expire after the clock was corrected.
func TestAClockThatWasSetBackEndsWhatWasNotedBefore(t *testing.T) {
	t.Parallel()
	const path = `C:\k\x.conf`
	write := func(t *testing.T, h *host, content string) {
		t.Helper()
		err := winos.WriteFile(h.Host().Files, path, strings.NewReader(content), winos.AccessAdministrators)
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		before func(t *testing.T, h *host, a *apply.Applier)
		reason contract.Reason // the reported reason until the record expires
		after  func(t *testing.T, h *host)
	}{
		"a service that did not stay up": {before: func(t *testing.T, h *host, a *apply.Applier) {
			t.Helper()
			for range 3 {
				if err := h.CrashService("kubelet"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				h.pass(t, a)
			}
		}, reason: contract.ReasonServiceFailed},
		"a fight over a file": {before: func(t *testing.T, h *host, a *apply.Applier) {
			t.Helper()
			for n := range 3 {
				write(t, h, strings.Repeat("w", n+1))
				h.pass(t, a)
			}
		}, reason: contract.ReasonForeignInterference},
		"a digest of a file that looks as it did": {
			before: func(t *testing.T, h *host, a *apply.Applier) {
				t.Helper()
				h.pass(t, a) // this pass reads the record
				write(t, h, "wrong")
			},
			after: func(t *testing.T, h *host) {
				t.Helper()
				if got := h.read(t, path); got != "right" {
					t.Errorf("the file has %q", got)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t)
				h.state.Manifest.Files = append(h.state.Manifest.Files, contract.File{Path: path, Content: "right"})
				h.SetClockOffset(48 * time.Hour)
				a := h.applier()
				h.pass(t, a)
				c.before(t, h, a)
				if p := h.pass(t, a).Problem(); c.reason != "" && (p == nil || p.Reason != c.reason) {
					t.Fatalf("meanwhile: %v", p)
				}
				h.SetClockOffset(0)
				if p := h.pass(t, a).Problem(); p != nil {
					t.Error(p)
				}
				if c.after != nil {
					c.after(t, h)
				}
			})
		})
	}
}
