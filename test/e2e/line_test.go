package e2e_test

import (
	"flag"
	"fmt"
	"slices"
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
	t.Cleanup(func() {
		close(over)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.last == over {
			thePlaces.add() // the shared environment is idle from now on
		}
	})
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

// longest are the tests with their own scene that take longest. They get a slot first, so that no slot is busy with a
// long test after all others are idle.
var longest = []string{
	"TestA87_AMachineThatNeverBootsIsReplacedFromAnotherCluster",
	"TestA87_AMachineDeploymentOfClusterAPIScalesRollsAndGoes",
	"TestA70_ALabThatMisbehavesHasEachAlertFireAndFallSilent",
	"TestA28_ANewOperatorVersionReachesEveryNodeWhateverHappensToTheOperator",
	"TestA80_NoObjectThatIsDeletedOrGarbledDisruptsANode",
	"TestNodesThatAreDisruptedConvergeAndNothingLeaks",
}

// thePlaces are the slots for tests with their own scene.
var thePlaces places

type places struct {
	mu      sync.Mutex
	made    int
	free    []string
	waiting []waiter
}

type waiter struct {
	test  string
	place chan string
}

// add makes one more slot.
func (p *places) add() {
	p.mu.Lock()
	p.made++
	name := fmt.Sprintf("scene %d", p.made)
	p.mu.Unlock()
	p.give(name)
}

// take waits for a free slot and returns its name.
func (p *places) take(test string) string {
	w := waiter{test: test, place: make(chan string, 1)}
	p.mu.Lock()
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	p.hand()
	return <-w.place
}

// give returns a slot.
func (p *places) give(place string) {
	p.mu.Lock()
	p.free = append(p.free, place)
	p.mu.Unlock()
	p.hand()
}

// hand gives a free slot to the waiting test that takes longest, or to the one that has waited longest.
func (p *places) hand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.free) == 0 || len(p.waiting) == 0 {
		return
	}
	next := 0
	for _, test := range longest {
		if i := slices.IndexFunc(p.waiting, func(w waiter) bool { return w.test == test }); i >= 0 {
			next = i
			break
		}
	}
	p.waiting[next].place <- p.free[0]
	p.free, p.waiting = p.free[1:], slices.Delete(p.waiting, next, next+1)
}

// waitForPlace takes a slot, and returns it when the test is over. If no slot is free, it waits.
func waitForPlace(t *testing.T) {
	t.Helper()
	place := thePlaces.take(t.Name())
	t.Cleanup(func() { thePlaces.give(place) })
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
	for range bound {
		thePlaces.add()
	}
	return parallel.Set("1000")
}
