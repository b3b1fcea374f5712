package policy_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
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
			t.Errorf("%s: jitter turns %s into %s", name, slow, quick)
		}
	}
	if policy.Backoff(1000, 0) != 5*time.Minute || policy.KeyBackoff(1000, 0) != 30*time.Minute {
		t.Error("the limits differ from the limits in the documentation")
	}
}

func TestTheNextAttemptIsAPauseAfterTheFailedPhase(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	of := func(uid types.UID, failures int32, ended bool) *v1alpha1.WindowsInstance {
		phase := v1alpha1.PhaseTime{Phase: v1alpha1.PhaseConnecting, StartTime: metav1.NewMicroTime(began)}
		if ended {
			phase.Milliseconds = new(int64(3000))
		}
		return &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{UID: uid},
			Status: v1alpha1.WindowsInstanceStatus{Failures: failures, Phases: []v1alpha1.PhaseTime{phase}}}
	}
	for failures, least := range map[int32]time.Duration{1: 5 * time.Second, 3: 20 * time.Second} {
		pause := policy.NextAttempt(of("a", failures, true)).Sub(began.Add(3 * time.Second))
		if pause < least || pause > least*6/5 {
			t.Errorf("the pause after %d failures is %s", failures, pause)
		}
	}
	if policy.NextAttempt(of("a", 1, true)).Equal(policy.NextAttempt(of("b", 1, true))) {
		t.Error("hosts that failed at the same time are retried at the same time")
	}
	for what, one := range map[string]*v1alpha1.WindowsInstance{"no failure": of("a", 0, true),
		"an attempt that has begun": of("a", 1, false), "no phase": {Status: v1alpha1.WindowsInstanceStatus{Failures: 1}}} {
		if next := policy.NextAttempt(one); !next.IsZero() {
			t.Errorf("%s: the next attempt is at %s", what, next)
		}
	}
}
