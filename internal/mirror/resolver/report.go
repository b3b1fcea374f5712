package resolver

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Attempt is one registry that was skipped.
type Attempt struct {
	// Source is host/repository, as the rules name it.
	Source string        `json:"source"`
	Reason Reason        `json:"reason"`
	Detail string        `json:"detail,omitempty"`
	Took   time.Duration `json:"took,omitempty"`
}

func (a Attempt) String() string {
	return a.Source + ": " + (&fault{reason: a.Reason, detail: a.Detail}).Error()
}

// Report is one pull for which registries were skipped. It holds nothing secret.
type Report struct {
	// Image is what was asked for: registry/repository with a tag or digest. The digest is that of
	// a manifest or a layer.
	Image string `json:"image"`
	// Served is the place that had it in the end; empty if none had, or if it broke off there.
	Served string `json:"served,omitempty"`
	// Attempts are the registries that were skipped, in the order in which they were asked; empty
	// if there was none to ask.
	Attempts []Attempt `json:"attempts"`
	// Refused says why the cluster refuses the image; empty if it does not.
	Refused string `json:"refused,omitempty"`
}

// IsFailure says whether nobody had it.
func (r Report) IsFailure() bool { return r.Served == "" }

const (
	// maxMessage is what an event's message may have in bytes, see config/admission/event.yaml.
	maxMessage = 1024
	// maxAttempts is where attempts in it end, so that there is room for how many more there are.
	maxAttempts = 900
)

// Message is a sentence for a user, short enough for an event.
func (r Report) Message() string {
	text := r.sentence()
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}

func (r Report) sentence() string {
	var b strings.Builder
	if r.IsFailure() {
		b.WriteString("Can't pull " + r.Image + ". ")
	} else {
		b.WriteString("Pulled " + r.Image + " from " + r.Served + ". ")
	}
	if r.Refused != "" {
		b.WriteString("Refused: " + r.Refused)
		return b.String()
	}
	if len(r.Attempts) == 0 {
		b.WriteString("No mirror serves this kind of pull, and the source must never be contacted")
		return b.String()
	}
	b.WriteString("Skipped: ")
	for i, a := range r.Attempts {
		text := a.String()
		if i > 0 && b.Len()+len(text) > maxAttempts {
			b.WriteString("; and " + strconv.Itoa(len(r.Attempts)-i) + " more")
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(text)
	}
	return b.String()
}

// Counter is what happened at one registry since the daemon started.
type Counter struct {
	Host string
	// Served counts requests, Bytes the bytes of their bodies that went to containerd.
	Served, Bytes int64
	// Passed counts how often the registry was skipped, and why.
	Passed map[Reason]int64
}

// meters are the counters of all registries, bounded.
type meters struct {
	mu       sync.Mutex
	counters map[string]*Counter
	failures int64
}

const maxCounters = 256

// others is where registries are counted for which there is no more room. No registry can have this
// name.
const others = "(others)"

func newMeters() *meters { return &meters{counters: map[string]*Counter{}} }

func (m *meters) failed() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failures++
}

func (m *meters) passed(host string, reason Reason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counter(host).Passed[reason]++
}

func (m *meters) served(host string, requests, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counter(host)
	c.Served += requests
	c.Bytes += bytes
}

func (m *meters) counter(host string) *Counter {
	c, ok := m.counters[host]
	if !ok && len(m.counters) >= maxCounters {
		host = others
		c, ok = m.counters[host]
	}
	if !ok {
		c = &Counter{Host: host, Passed: map[Reason]int64{}}
		m.counters[host] = c
	}
	return c
}

// counts are the counters, by host.
func (m *meters) counts() (all []Counter, failures int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, host := range slices.Sorted(maps.Keys(m.counters)) {
		c := *m.counters[host]
		c.Passed = maps.Clone(c.Passed)
		all = append(all, c)
	}
	return all, m.failures
}
