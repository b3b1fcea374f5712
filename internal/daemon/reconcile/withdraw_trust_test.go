package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// A proxy and the proxy's CA are withdrawn together.
func TestA25_ACAThatIsWithdrawnWithItsProxyGoesWithinSeconds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		ours, text := newCA(t, "the proxy's")
		holds(t, r)
		watched := manifest()
		watched.WatchedEnvironmentVars = []string{"HTTPS_PROXY"}
		r.want(t, watched, contract.Confidential{Trust: []string{text},
			Environment: map[string]string{"HTTPS_PROXY": secretProxy}})
		pass(10 * time.Second)
		if r.times(t, ours) != 1 {
			t.Fatal("the CA is missing, so the test shows nothing")
		}
		r.want(t, watched, contract.Confidential{})
		pass(10 * time.Second)
		if r.times(t, ours) != 0 {
			t.Error("the CA still exists")
		}
	})
}
