package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// A group policy installs the same CA on all servers, as many companies do. Windows then refuses to remove it. The
// next revision must hold all the same.
func TestACAThatSomebodyElseBringsTooHoldsNoRevisionBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		_, text := newCA(t, "ours, and of group policy")
		holds(t, r)
		r.want(t, manifest(), contract.Confidential{Trust: []string{text}})
		pass(5 * time.Second)
		r.policy.brings.Store(true)
		three := r.want(t, another("two"), contract.Confidential{})
		pass(10 * time.Second)
		r.expectStatus(t, three, "")
		exists := func() bool {
			return slices.ContainsFunc(r.reported.Load().Problems,
				func(p string) bool { return strings.HasPrefix(p, string(contract.ReasonTrustFailed)) })
		}
		if !exists() {
			t.Errorf("the report does not say that a CA could not be removed: %q", r.reported.Load().Problems)
		}
		pass(10 * time.Minute)
		if n := r.policy.tries.Load(); n != 1 {
			t.Errorf("the removal was tried %d times within ten minutes", n)
		}
		if !exists() {
			t.Error("the report no longer says that a CA could not be removed")
		}
		pass(24 * time.Hour)
		if n := r.policy.tries.Load(); n < 2 || n > 5 {
			t.Errorf("the removal was tried %d times within a day", n)
		}
		if was, err := state.Read(r.Host().Files); err != nil || len(was.Certificates) > 0 || exists() {
			t.Errorf("the group policy's CA still counts as the daemon's: %d certificates, %v, %q",
				len(was.Certificates), err, r.reported.Load().Problems)
		}
		r.expectStatus(t, three, "")
	})
}

// If the group policy ends before the daemon gave up, the daemon removes the CA.
func TestACAGoesWhenNobodyElseBringsItAnyMore(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		der, text := newCA(t, "ours")
		holds(t, r)
		r.want(t, manifest(), contract.Confidential{Trust: []string{text}})
		pass(5 * time.Second)
		r.policy.brings.Store(true)
		three := r.want(t, manifest(), contract.Confidential{})
		pass(time.Minute)
		r.policy.brings.Store(false)
		pass(2 * time.Hour)
		r.expectStatus(t, three, "")
		if n := r.times(t, der); n != 0 || len(r.reported.Load().Problems) > 0 {
			t.Errorf("the root store has the CA %d times, and the report has %q", n, r.reported.Load().Problems)
		}
	})
}
