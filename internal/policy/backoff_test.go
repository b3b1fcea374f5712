package policy_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/policy"
)

func TestBackoffGrowsToALimit(t *testing.T) {
	t.Parallel()
	for name, backoff := range map[string]func(int32, float64) time.Duration{"of attempts": policy.Backoff,
		"of keys": policy.KeyBackoff} {
		last := backoff(0, 0)
		for n := int32(1); n < 40; n++ {
			next := backoff(n, 0)
			if next < last || next > backoff(1000, 0) {
				t.Fatalf("%s: failure %d waits %s after %s", name, n, next, last)
			}
			last = next
		}
		if quick, slow := backoff(3, 0), backoff(3, 0.999); slow <= quick || slow > quick*12/10 {
			t.Errorf("%s: jitter makes %s of %s", name, slow, quick)
		}
	}
	if policy.Backoff(1000, 0) != 5*time.Minute || policy.KeyBackoff(1000, 0) != 30*time.Minute {
		t.Error("the limits are others than the docs say")
	}
}
