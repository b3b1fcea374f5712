package resolver

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

func TestMemoryForgetsTheOldestAndTheUnused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, memoryForgets)
}

func memoryForgets(t *testing.T) {
	m := newMemory[int, string](3)
	for i := range 3 {
		m.put(i, fmt.Sprint(i), time.Minute)
	}
	m.get(0)
	m.put(3, "3", time.Minute)
	if _, ok := m.get(1); ok {
		t.Error("the least recently used entry still exists")
	}
	if v, ok := m.get(0); !ok || v != "0" {
		t.Error("a used entry was removed")
	}
	time.Sleep(time.Minute + 1)
	if _, ok := m.get(0); ok {
		t.Error("an entry that is too old still exists")
	}
	m.put(3, "new", time.Minute)
	m.forget(3)
	if _, ok := m.get(3); ok {
		t.Error("the entry was not removed")
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
	synctest.Test(t, troubleIsRemembered)
}

func troubleIsRemembered(t *testing.T) {
	s := newState(Options{}, Config{})
	at, sibling := mirror.At("a.test", "x"), mirror.At("a.test", "y")
	is := func(at mirror.Location, want Reason) {
		t.Helper()
		if found, _ := s.trouble(at); found != want {
			t.Errorf("the fault of %v is %q, want %q", at, found, want)
		}
	}
	s.troubled(at, faultf(ReasonSlow, ""))
	is(sibling, ReasonSlow)
	time.Sleep(deadLife + 1)
	is(at, "")
	s.troubled(at, faultf(ReasonSlow, ""))
	s.troubled(sibling, faultf(ReasonNotFound, "")) // a host that answers is no longer in trouble
	is(at, "")
	s.troubled(at, faultf(ReasonWrongContent, ""))
	s.troubled(at, faultf(ReasonNotFound, ""))
	is(at, ReasonWrongContent)
	is(sibling, "")
	time.Sleep(wrongLife + 1)
	is(at, "")
}

func TestTheCountersAreBounded(t *testing.T) {
	t.Parallel()
	m := NewMetrics()
	for i := range 3 * maxKnown {
		m.skip(fmt.Sprint(i), ReasonSlow)
		m.serve(fmt.Sprint(i), 1, 10)
	}
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"wicd_resolver_skipped_total": 3 * maxKnown,
		"wicd_resolver_served_total": 3 * maxKnown, "wicd_resolver_served_bytes_total": 30 * maxKnown} {
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			sum := 0.0
			for _, one := range f.GetMetric() {
				sum += one.GetCounter().GetValue()
			}
			if sum != want || len(f.GetMetric()) != maxKnown+1 {
				t.Errorf("%s: %d registries, %v in all", name, len(f.GetMetric()), sum)
			}
		}
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
