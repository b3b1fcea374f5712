package userdata

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/lab/scheme"
)

// Machines made before that time are trusted at first contact, so one that is to come would have all of them trusted.
func TestA09_ATimeOfAClockThatWasAheadIsPutRight(t *testing.T) {
	t.Parallel()
	api, right := fake.NewClientBuilder().WithScheme(scheme.New(t)).Build(), time.Now().UTC().Truncate(time.Second)
	var clock time.Time
	r := &reconciler{Options: Options{Namespace: namespace, Now: func() time.Time { return clock }}, client: api}
	publish := func(at time.Time) time.Time {
		t.Helper()
		clock = at
		key, err := r.hostKey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err = r.mark(t.Context(), key, true); err != nil {
			t.Fatal(err)
		}
		since, published := key.publishedSince()
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
