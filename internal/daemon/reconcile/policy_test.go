package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// Many companies install the same CA on all servers by a group policy. Windows then refuses to remove the CA.
// Nevertheless, a revision without the CA must be verified.
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
		pass(24 * time.Hour)
		if n := r.policy.tries.Load(); n != 1 {
			t.Errorf("the removal was tried %d times within a day", n)
		}
		if was, err := state.Read(r.Host().Files); err != nil || len(was.Certificates) > 0 ||
			len(r.reported.Load().Problems) > 0 {
			t.Errorf("the group policy's CA still counts as the daemon's: %d certificates, %v, %q",
				len(was.Certificates), err, r.reported.Load().Problems)
		}
		r.expectStatus(t, three, "")
	})
}
