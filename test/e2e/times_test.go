package e2e_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// theTimes records how long the tests of a run took.
var theTimes times

// times holds the duration of each test, without the time in a queue. Each test has a lane: a shared stage, or a slot
// for tests with their own scene.
type times struct {
	mu    sync.Mutex
	began time.Time
	all   []taken
}

type taken struct {
	test, lane  string
	began, took time.Duration
}

// measure records the time from now until the end of the test.
func (s *times) measure(t *testing.T, lane string) {
	t.Helper()
	began := time.Now()
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, taken{test: t.Name(), lane: lane, began: began.Sub(s.began), took: time.Since(began)})
	})
}

// String lists the ten slowest tests, and for each lane how long it was idle until all lanes were done.
func (s *times) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	total := time.Since(s.began)
	fmt.Fprintf(&b, "The ten slowest of %d tests in %s:\n", len(s.all), total.Round(time.Second))
	slices.SortFunc(s.all, func(a, b taken) int { return cmp.Compare(b.took, a.took) })
	lanes := map[string]time.Duration{}
	ends := map[string]time.Duration{}
	for i, one := range s.all {
		if i < 10 {
			fmt.Fprintf(&b, "%5.0f s  from %4.0f s on, %s: %s\n", one.took.Seconds(), one.began.Seconds(), one.lane, one.test)
		}
		lanes[one.lane] += one.took
		ends[one.lane] = max(ends[one.lane], one.began+one.took)
	}
	for _, lane := range slices.Sorted(maps.Keys(lanes)) {
		fmt.Fprintf(&b, "%s: busy for %.0f s, idle for %.0f s, done after %.0f s\n", lane, lanes[lane].Seconds(),
			(total - lanes[lane]).Seconds(), ends[lane].Seconds())
	}
	return b.String()
}
