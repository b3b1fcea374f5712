package userdata

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Machines that were created before that time are trusted at first contact, so with a time in the future, all of
// them would be trusted.
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
			t.Fatal("nothing says that it is published")
		}
		return since
	}
	if since := publish(right.AddDate(0, 0, 30)); !since.After(right) {
		t.Fatalf("by a clock that is ahead it is published since %s", since)
	}
	for _, later := range []time.Duration{0, time.Hour} {
		if since := publish(right.Add(later)); !since.Equal(right) {
			t.Errorf("%s after the clock was put right it is published since %s", later, since)
		}
	}
}
