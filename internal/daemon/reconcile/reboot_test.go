package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func (r *rig) bootID(t *testing.T) string {
	t.Helper()
	facts, err := r.Host().System.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return facts.BootID
}

func TestTheNodeSaysWhichBootItIs(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		id := r.bootID(t)
		if got := r.annotations(t)[contract.BootIDAnnotation]; got != id || id == "" {
			t.Errorf("the Node reports boot ID %q, the host has %q", got, id)
		}
		r.annotate(t, contract.BootIDAnnotation, "another")
		pass(time.Second)
		if got := r.annotations(t)[contract.BootIDAnnotation]; got != id {
			t.Errorf("the Node reports boot ID %q, the host has %q", got, id)
		}
	})
}

func TestAHostRebootsOnceWhenTheEndOfItsBootIsApproved(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		first := r.bootID(t)
		r.annotate(t, contract.RebootApprovedAnnotation, "another boot")
		pass(time.Minute)
		if r.bootID(t) != first {
			t.Fatal("the host rebooted although another boot was approved to end")
		}
		r.annotate(t, contract.RebootApprovedAnnotation, first)
		pass(time.Minute)
		second := r.bootID(t)
		if second == first {
			t.Fatal("the host did not reboot")
		}
		r.stopDaemon() // the daemon of this test does not run as a process of the simulated machine
		r.start(t, r.api)
		pass(20 * time.Minute)
		if r.bootID(t) != second {
			t.Error("the host rebooted again")
		}
		if got := r.annotations(t)[contract.BootIDAnnotation]; got != second {
			t.Errorf("the Node reports boot ID %q, the host has %q", got, second)
		}
		r.expectStatus(t, one(), "")
	})
}

// keptUp simulates a Windows that may refuse to reboot.
type keptUp struct {
	winos.System
	refuses *atomic.Bool
}

// Reboot implements winos.System.
func (k keptUp) Reboot(ctx context.Context, why string) error {
	if k.refuses.Load() {
		return fmt.Errorf("asking for a reboot: %w", winos.ErrDenied)
	}
	return k.System.Reboot(ctx, why)
}

func TestTheNodeSaysWhyWindowsDoesNotReboot(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		first := r.bootID(t)
		r.keptUp.Store(true)
		r.annotate(t, contract.RebootApprovedAnnotation, first)
		pass(3 * time.Minute)
		r.expectStatus(t, one(), contract.ReasonRebootFailed)
		if exists := r.annotations(t)[contract.ApplyStatusAnnotation]; !strings.Contains(exists, winos.ErrDenied.Error()) {
			t.Errorf("the Node reports %q", exists)
		}
		r.keptUp.Store(false)
		pass(2 * time.Minute)
		if r.bootID(t) == first {
			t.Error("the host did not reboot")
		}
		r.stopDaemon() // the daemon of this test does not run as a process of the simulated machine
		r.start(t, r.api)
		pass(2 * time.Minute)
		r.expectStatus(t, one(), "")
	})
}

// The operator waits for the reboot, so the Node shows the refused reboot and no other problem.
func TestARefusedRebootIsSaidBeforeWhatElseIsWrong(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.hns.hang()
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(5 * time.Minute)
		r.expectStatus(t, one(), contract.ReasonNetworkPending)
		r.keptUp.Store(true)
		r.annotate(t, contract.RebootApprovedAnnotation, r.bootID(t))
		pass(3 * time.Minute)
		r.expectStatus(t, one(), contract.ReasonRebootFailed)
		r.annotate(t, contract.RebootApprovedAnnotation, "")
		pass(3 * time.Minute)
		r.expectStatus(t, one(), contract.ReasonNetworkPending)
		r.hns.goOn()
		pass(time.Minute)
	})
}

func TestARebootThatWindowsWaitsForIsSaidAndTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		signs    []string
		replaced []string
		want     string
	}{
		"servicing": {signs: []string{winos.SignServicing}, want: "ComponentBasedServicing"},
		"an update and files": {signs: []string{winos.SignUpdate}, replaced: []string{`C:\Windows\System32\a.dll`},
			want: "WindowsUpdate,PendingFileRename"},
		"files of ours": {replaced: []string{contract.PathKubelet}},
		"files of ours, and other signs": {replaced: []string{contract.PathKubelet, `C:\Program Files\x.exe`},
			want: "PendingFileRename"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				if exists, there := r.annotations(t)[contract.RebootPendingAnnotation]; there {
					t.Errorf("the Node reports %q", exists)
				}
				r.SetRebootSigns(c.signs, c.replaced...)
				pass(11 * time.Minute)
				if exists, there := r.annotations(t)[contract.RebootPendingAnnotation]; exists != c.want ||
					there != (c.want != "") {
					t.Errorf("the Node reports %q, want %q", exists, c.want)
				}
				r.SetRebootSigns(nil)
				pass(11 * time.Minute)
				if exists, there := r.annotations(t)[contract.RebootPendingAnnotation]; there {
					t.Errorf("the Node still reports %q", exists)
				}
			})
		})
	}
}

// After its certificate has expired, a daemon can't report anything. So the daemon reports the end of each new
// certificate at once.
func TestTheNodeSaysWhenTheDaemonsCertificateEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		first := time.Now().Add(14 * 24 * time.Hour)
		r.ends.Store(&first)
		holds(t, r)
		says := func(end time.Time) {
			t.Helper()
			if got, want := r.annotations(t)[contract.CertificateEndAnnotation],
				end.UTC().Format(time.RFC3339); got != want {
				t.Errorf("the Node reports %q, want %q", got, want)
			}
		}
		says(first)
		writes := len(r.api.Actions())
		pass(time.Hour)
		if n := len(r.api.Actions()) - writes; n != 0 {
			t.Errorf("%d requests within an hour without a change", n)
		}
		renewed := first.Add(9 * 24 * time.Hour)
		r.ends.Store(&renewed)
		pass(11 * time.Minute)
		says(renewed)
		if n := len(r.api.Actions()) - writes; n != 1 {
			t.Errorf("%d requests for one certificate", n)
		}
	})
}
