package winos

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRecoveryDelaysAreMillisecondsAndTheResetSeconds(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		delays []time.Duration
		reset  time.Duration
		want   recovery
	}{
		"none": {nil, 0, recovery{}},
		"the contract's": {[]time.Duration{10 * time.Second, 120 * time.Second}, 300 * time.Second,
			recovery{300, []recoveryAction{{1, 10_000}, {1, 120_000}}}},
		"a reset without restarts":    {nil, time.Minute, recovery{}},
		"at once":                     {[]time.Duration{0}, 0, recovery{0, []recoveryAction{{1, 0}}}},
		"parts of units count as one": {[]time.Duration{1}, time.Millisecond, recovery{1, []recoveryAction{{1, 1}}}},
		"milliseconds are not rounded": {[]time.Duration{1500 * time.Millisecond}, time.Second,
			recovery{1, []recoveryAction{{1, 1500}}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := encodeRecovery(test.delays, test.reset)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if again := recoveryOf(got.bytes()); !cmp.Equal(again, got) {
				t.Errorf("through the registry it becomes %+v", again)
			}
		})
	}
}

func TestRecoveryThatWindowsCannotKeepIsRefused(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{-time.Second, math.MaxUint32 * time.Millisecond} {
		if _, err := encodeRecovery([]time.Duration{d}, 0); err == nil {
			t.Errorf("a delay of %v passes", d)
		}
	}
	for _, d := range []time.Duration{-time.Second, math.MaxUint32 * time.Second} {
		if _, err := encodeRecovery(nil, d); err == nil {
			t.Errorf("a reset after %v passes", d)
		}
	}
}

func TestRecoveryIsReadUpToTheFirstActionThatIsNoRestart(t *testing.T) {
	t.Parallel()
	delays, reset := decodeRecovery(recovery{60, []recoveryAction{{1, 1000}, {3, 5}, {1, 7}}})
	if !slices.Equal(delays, []time.Duration{time.Second}) || reset != time.Minute {
		t.Errorf("got %v, %v", delays, reset)
	}
}

func TestRecoveryThatIsCutOffIsReadAsFarAsItGoes(t *testing.T) {
	t.Parallel()
	whole := recovery{60, []recoveryAction{{1, 1000}, {1, 2000}}}.bytes()
	for size, want := range map[int]int{0: 0, 19: 0, 20: 0, 27: 0, 28: 1, 35: 1, 36: 2} {
		if got := len(recoveryOf(whole[:size]).Actions); got != want {
			t.Errorf("%d bytes give %d actions, want %d", size, got, want)
		}
	}
}
