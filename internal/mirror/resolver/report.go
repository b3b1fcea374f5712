package resolver

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Attempt is one registry that was skipped.
type Attempt struct {
	// Source is host/repository, as the rules name it.
	Source string
	Reason Reason
	Detail string
}

func (a Attempt) String() string {
	return a.Source + ": " + (&fault{reason: a.Reason, detail: a.Detail}).Error()
}

// Report describes one pull that skipped registries. It contains no secret.
type Report struct {
	// Image is the requested image: registry/repository with a tag or digest. The digest may belong to a manifest or a
	// layer.
	Image string
	// Served is the registry that delivered the image. It is empty if no registry did, or if the transfer broke off.
	Served string
	// Attempts are the skipped registries in the order of the attempts; empty if there was no registry to try.
	Attempts []Attempt
	// Refused is why the cluster refuses the image, or empty.
	Refused string
}

// IsFailure reports whether no registry delivered the image.
func (r Report) IsFailure() bool { return r.Served == "" }

const (
	// maxMessage is the maximum length of an event's message in bytes, see config/admission/event.yaml.
	maxMessage = 1024
	// maxAttempts is the length of a message in bytes. A longer message lists no more attempts, so that it has
	// space for their number.
	maxAttempts = 900
)

// Message returns a sentence for a user, short enough for an event.
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

// Counter counts the requests to one registry since the daemon started.
type Counter struct {
	Host string
	// Served counts requests. Bytes counts the bytes of their bodies that containerd received.
	Served, Bytes int64
	// Passed counts how often the registry was skipped, by reason.
	Passed map[Reason]int64
}

// meters are the counters of all registries, up to a maximum number.
type meters struct {
	mu       sync.Mutex
	counters map[string]*Counter
	failures int64
}

const maxCounters = 256

// others is the counter for registries beyond the maximum. No registry can have this name.
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

// counts returns the counters, sorted by host.
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
