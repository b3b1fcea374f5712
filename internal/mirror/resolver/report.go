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
	// First and Last are when it was so; Count is how often.
	First time.Time `json:"first"`
	Last  time.Time `json:"last"`
	Count int       `json:"count"`
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

// same says whether two reports differ in nothing but times and digits of what was pulled.
func (r Report) same(other Report) bool {
	return r.Served == other.Served && r.Refused == other.Refused &&
		slices.EqualFunc(r.Attempts, other.Attempts, func(a, b Attempt) bool {
			return a.Source == b.Source && a.Reason == b.Reason
		})
}

// Counter is what happened at one registry since the daemon started.
type Counter struct {
	Host string
	// Served counts requests, Bytes the bytes of their bodies that went to containerd.
	Served, Bytes int64
	// Passed counts how often the registry was skipped, and why.
	Passed map[Reason]int64
}

// records keeps reports and counters, both bounded.
type records struct {
	mu       sync.Mutex
	now      func() time.Time
	reports  []Report // the oldest first
	counters map[string]*Counter
	failures int64
}

// Bounds of the records. A report takes about a kilobyte.
const (
	maxReports  = 64
	maxCounters = 256
)

// others is where registries are counted for which there is no more room. No registry can have this
// name.
const others = "(others)"

func newRecords(now func() time.Time) *records {
	return &records{now: now, counters: map[string]*Counter{}}
}

// add files a report. News says that the last one about this image was another, or that there was
// none.
func (b *records) add(r Report) (filed Report, news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.IsFailure() {
		b.failures++
	}
	r.First, r.Last, r.Count = b.now(), b.now(), 1
	news = true
	if i := slices.IndexFunc(b.reports, func(old Report) bool {
		return old.Image == r.Image &&
			old.IsFailure() == r.IsFailure()
	}); i >= 0 {
		old := b.reports[i]
		news = !old.same(r)
		r.First, r.Count = old.First, old.Count+1
		b.reports = slices.Delete(b.reports, i, i+1)
	}
	if len(b.reports) >= maxReports {
		b.reports = slices.Delete(b.reports, 0, 1)
	}
	b.reports = append(b.reports, r)
	return r, news
}

func (b *records) passed(host string, reason Reason) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counter(host).Passed[reason]++
}

func (b *records) served(host string, requests, bytes int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counter(host)
	c.Served += requests
	c.Bytes += bytes
}

func (b *records) counter(host string) *Counter {
	c, ok := b.counters[host]
	if !ok && len(b.counters) >= maxCounters {
		host = others
		c, ok = b.counters[host]
	}
	if !ok {
		c = &Counter{Host: host, Passed: map[Reason]int64{}}
		b.counters[host] = c
	}
	return c
}

// latest are the reports, the newest first.
func (b *records) latest() []Report {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := slices.Clone(b.reports)
	slices.Reverse(all)
	return all
}

// counts are the counters, by host.
func (b *records) counts() (all []Counter, failures int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, host := range slices.Sorted(maps.Keys(b.counters)) {
		c := *b.counters[host]
		c.Passed = maps.Clone(c.Passed)
		all = append(all, c)
	}
	return all, b.failures
}
