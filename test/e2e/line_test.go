package e2e_test

import (
	"flag"
	"fmt"
	"strconv"
	"sync"
	"testing"
)

// line is a queue of tests that share an environment. Tests that use one stage run one after the other, in the
// order of the source. Other tests run in parallel, because all of them mostly wait for hosts.
type line struct {
	name string
	mu   sync.Mutex
	last <-chan struct{}
}

// join adds a test to the end of the queue. before is closed when the previous test is over. If there is no previous
// test, before is nil.
func (l *line) join(t *testing.T) (before <-chan struct{}) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	over := make(chan struct{})
	before, l.last = l.last, over
	t.Cleanup(func() { close(over) })
	return before
}

// inLine makes a test parallel and adds it to queues. turn waits until all earlier tests of these queues are over. The
// order of a queue is the order of the source, because Go starts tests in this order and each test joins its queues
// before it becomes parallel.
func inLine(t *testing.T, lines ...*line) (turn func()) {
	t.Helper()
	var before []<-chan struct{}
	for _, l := range lines {
		if b := l.join(t); b != nil {
			before = append(before, b)
		}
	}
	t.Parallel()
	return func() {
		for _, b := range before {
			<-b
		}
		for _, l := range lines {
			theTimes.measure(t, l.name)
		}
	}
}

// places contains the names of the free slots for tests with their own scene.
var places chan string

// waitForPlace takes a slot, and returns it when the test is over. If no slot is free, it waits.
func waitForPlace(t *testing.T) {
	t.Helper()
	place := <-places
	t.Cleanup(func() { places <- place })
	theTimes.measure(t, place)
}

// sideBySide makes -parallel limit the number of scenes that belong to a single test. Go's own limit would also count
// tests that wait in a queue. They could block the test that they wait for.
func sideBySide() error {
	flag.Parse()
	parallel := flag.Lookup("test.parallel").Value
	bound, err := strconv.Atoi(parallel.String())
	if err != nil {
		return fmt.Errorf("reading -parallel: %w", err)
	}
	places = make(chan string, bound)
	for i := range bound {
		places <- fmt.Sprintf("scene %d", i+1)
	}
	return parallel.Set("1000")
}
