package reconcile_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// Group policy brings the same CA to all servers, as many companies do with their own.
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
			t.Errorf("the report does not say that a CA stays: %q", r.reported.Load().Problems)
		}
		pass(10 * time.Minute)
		if n := r.policy.tries.Load(); n != 1 {
			t.Errorf("the removal was tried %d times within ten minutes", n)
		}
		if !exists() {
			t.Error("the report says no more that a CA stays")
		}
		pass(24 * time.Hour)
		if n := r.policy.tries.Load(); n < 2 || n > 5 {
			t.Errorf("the removal was tried %d times within a day", n)
		}
		if was, err := state.Read(r.Host().Files); err != nil || len(was.Certificates) > 0 || exists() {
			t.Errorf("what somebody else brings still counts as ours: %d certificates, %v, %q", len(was.Certificates), err,
				r.reported.Load().Problems)
		}
		r.expectStatus(t, three, "")
	})
}

// A policy may end before that is known.
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
			t.Errorf("the CA is there %d times, and the report says %q", n, r.reported.Load().Problems)
		}
	})
}
