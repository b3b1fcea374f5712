package e2e_test

import (
	"flag"
	"fmt"
	"strconv"
	"sync"
	"testing"
)

// line is where tests wait for what they share. Those that use one stage run one after the other, in the order
// of the source, while others run beside them: all of them wait for hosts more than they compute.
type line struct {
	name string
	mu   sync.Mutex
	last <-chan struct{}
}

// join takes the next place. The test before it is over when before is closed, or nil.
func (l *line) join(t *testing.T) (before <-chan struct{}) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	over := make(chan struct{})
	before, l.last = l.last, over
	t.Cleanup(func() { close(over) })
	return before
}

// inLine makes a test parallel and gives it a place in lines. turn waits until all that came before are over. Go
// begins tests in the order of the source until they are parallel, so the places are in that order.
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

// places has the names of the free places for tests with a scene of their own.
var places chan string

// waitForPlace waits until not too many other tests have a scene, and keeps the place until the test is over.
func waitForPlace(t *testing.T) {
	t.Helper()
	place := <-places
	t.Cleanup(func() { places <- place })
	theTimes.measure(t, place)
}

// sideBySide has -parallel bound the scenes of single tests. Go's own bound would count tests that stand in
// line, and could keep the one out for which they wait.
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
