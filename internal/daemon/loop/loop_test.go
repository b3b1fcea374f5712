package loop_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/loop"
)

func TestAStepFollowsAfterItsPauseOrAtASignal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		wake, began := make(chan struct{}, 1), time.Now()
		var at []time.Duration
		loop.Run(ctx, clock.RealClock{}, wake, func(context.Context) time.Duration {
			switch at = append(at, time.Since(began)); len(at) {
			case 2:
				loop.Signal(wake)
				loop.Signal(wake) // a second signal doesn't block
			case 3:
				return 0 // the next step follows at once
			case 4:
				stop()
			}
			return time.Minute
		})
		want := []time.Duration{0, time.Minute, time.Minute, time.Minute}
		for i := range want {
			if len(at) != len(want) || at[i] != want[i] {
				t.Fatalf("the steps were at %v, want %v", at, want)
			}
		}
	})
}

func TestAPauseGrowsFromTheFirstToTheLimit(t *testing.T) {
	t.Parallel()
	var pause time.Duration
	for _, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
		30 * time.Second} {
		if pause = loop.Grow(pause, 2, 5*time.Second, 30*time.Second); pause != want {
			t.Errorf("the pause is %s, want %s", pause, want)
		}
	}
	for range 100 {
		if d := loop.Jitter(time.Minute); d < 48*time.Second || d > 72*time.Second {
			t.Errorf("a pause of a minute becomes %s", d)
		}
	}
}
