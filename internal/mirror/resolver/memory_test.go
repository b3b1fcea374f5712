package resolver

import (
	"fmt"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// clock is a clock that a test sets.
type clock struct{ at time.Time }

func (c *clock) now() time.Time       { return c.at }
func (c *clock) pass(d time.Duration) { c.at = c.at.Add(d) }
func newClock() *clock                { return &clock{time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)} }

func TestMemoryForgetsTheOldestAndTheUnused(t *testing.T) {
	t.Parallel()
	c := newClock()
	m := newMemory[int, string](3, c.now)
	for i := range 3 {
		m.put(i, fmt.Sprint(i), time.Minute)
	}
	m.get(0)
	m.put(3, "3", time.Minute)
	if _, ok := m.get(1); ok {
		t.Error("the least recently used is still there")
	}
	if v, ok := m.get(0); !ok || v != "0" {
		t.Error("one that was used has gone")
	}
	c.pass(time.Minute)
	if _, ok := m.get(0); ok {
		t.Error("one that is too old is still there")
	}
	m.put(3, "new", time.Minute)
	m.forget(3)
	if _, ok := m.get(3); ok {
		t.Error("it was not forgotten")
	}
	for i := range 100 {
		m.put(i, "", time.Hour)
	}
	if n := len(m.cache.Keys()); n != 3 {
		t.Errorf("%d entries", n)
	}
}

func TestTroubleIsRememberedForAWhile(t *testing.T) {
	t.Parallel()
	c := newClock()
	s := newState(Options{Now: c.now}, Config{})
	at, sibling := mirror.At("a.test", "x"), mirror.At("a.test", "y")
	is := func(at mirror.Location, want Reason) {
		t.Helper()
		if found, _ := s.trouble(at); found != want {
			t.Errorf("the trouble of %v is %q instead of %q", at, found, want)
		}
	}
	s.troubled(at, faultf(ReasonSlow, ""))
	is(sibling, ReasonSlow)
	c.pass(deadLife)
	is(at, "")
	s.troubled(at, faultf(ReasonSlow, ""))
	s.troubled(sibling, faultf(ReasonNotFound, "")) // it answers
	is(at, "")
	s.troubled(at, faultf(ReasonWrongContent, ""))
	s.troubled(at, faultf(ReasonNotFound, ""))
	is(at, ReasonWrongContent)
	is(sibling, "")
	c.pass(wrongLife)
	is(at, "")
}

func TestTheCountersAreBounded(t *testing.T) {
	t.Parallel()
	m := newMeters()
	for i := range 3 * maxCounters {
		m.passed(fmt.Sprint(i), ReasonSlow)
		m.served(fmt.Sprint(i), 1, 10)
		m.failed()
	}
	all, failures := m.counts()
	if len(all) != maxCounters+1 || failures != 3*maxCounters {
		t.Errorf("%d counters, %d failures", len(all), failures)
	}
	var bytes, passed int64
	for _, one := range all {
		bytes += one.Bytes
		passed += one.Passed[ReasonSlow]
	}
	if bytes != 30*maxCounters || passed != 3*maxCounters {
		t.Errorf("%d bytes, %d passed over", bytes, passed)
	}
}

func TestAMessageFitsIntoAnEvent(t *testing.T) {
	t.Parallel()
	r := Report{Image: "registry.test/a:b"}
	for i := range 100 {
		r.Attempts = append(r.Attempts, Attempt{Source: fmt.Sprintf("mirror-%d.test/a", i), Reason: ReasonUntrusted,
			Detail: "certificate signed by unknown authority"})
	}
	text := r.Message()
	if len(text) > 1000 || text[:40] != "Can't pull registry.test/a:b. Skipped: m" || text[len(text)-8:] != "more" &&
		text[len(text)-5:] != " more" {
		t.Errorf("%d bytes: %s", len(text), text)
	}
	r.Attempts, r.Served = r.Attempts[:1], "mirror-1.test/a"
	if want := "Pulled registry.test/a:b from mirror-1.test/a. Skipped: mirror-0.test/a: Untrusted " +
		"(certificate signed by unknown authority)"; r.Message() != want {
		t.Error(r.Message())
	}
}
