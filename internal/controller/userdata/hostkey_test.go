package userdata

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Machines that were created before the time of publication are trusted at the first contact. If this time were in
// the future, all Machines would be trusted.
func TestA09_ATimeOfAClockThatWasAheadIsPutRight(t *testing.T) {
	t.Parallel()
	right, secret := time.Now().UTC().Truncate(time.Second), &corev1.Secret{}
	want := wanted{script: "$hostKeyLine = 'ssh-ed25519 AAAA'", hostKey: "ssh-ed25519 AAAA"}
	publish := func(at time.Time) time.Time {
		t.Helper()
		if !want.in(secret, at) {
			want.into(secret, at)
		}
		since, published := hostKeySince(secret, want.hostKey)
		if !published {
			t.Fatal("the time of publication is missing")
		}
		return since
	}
	if since := publish(right.AddDate(0, 0, 30)); !since.After(right) {
		t.Fatalf("with a clock that is ahead, the time of publication is %s", since)
	}
	for _, later := range []time.Duration{0, time.Hour} {
		if since := publish(right.Add(later)); !since.Equal(right) {
			t.Errorf("%s after the clock was corrected, the time of publication is %s", later, since)
		}
	}
}
