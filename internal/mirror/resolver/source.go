package resolver

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// sources are the registries that may have a target, in the order in which they are asked.
type sources struct {
	first []mirror.Pull // not asked yet, in the order of the rules
	// again is asked when first is empty: registries that were in trouble a short while ago, took too
	// long while another one was left, or broke off.
	again []mirror.Pull
}

func (s *sources) len() int { return len(s.first) + len(s.again) }

// sourcesOf lists the sources of a target. After the first request of a pull, containerd asks by
// digest, also for a tag. So the latest pull of a repository decides whether its digests come from
// mirrors for tags or for digests. If there was none (the daemon was restarted), both may have them.
func (r *Resolver) sourcesOf(rules mirror.Rules, t target, method string) []mirror.Pull {
	of := func(kind contract.PullKind) []mirror.Pull {
		return rules.Sources(mirror.Reference{Host: t.registry, Repository: t.repository, Kind: kind})
	}
	switch kind, known := r.kinds.get(t.image()); {
	case t.tag != "":
		return of(contract.PullByTag)
	case t.begins(method):
		return of(contract.PullByDigest)
	case known:
		return of(kind)
	}
	both := of(contract.PullByDigest)
	for _, at := range of(contract.PullByTag) {
		if !slices.Contains(both, at) {
			both = append(both, at)
		}
	}
	slices.SortStableFunc(both, func(a, b mirror.Pull) int { // the source is last
		return map[bool]int{true: 1}[a.Source] - map[bool]int{true: 1}[b.Source]
	})
	return both
}

// begins reports whether a pull begins with this request: the HEAD of a manifest.
func (t target) begins(method string) bool {
	return t.endpoint == manifests && method == http.MethodHead
}

// began remembers the kind of a pull that a source answered.
func (r *Resolver) began(t target, method string) {
	switch {
	case t.tag != "":
		r.kinds.put(t.image(), contract.PullByTag, kindLife)
	case t.begins(method):
		r.kinds.put(t.image(), contract.PullByDigest, kindLife)
	}
}

const (
	kindsKept = 1024
	kindLife  = 6 * time.Hour
)

// trouble is why a source is asked after the others for a while.
type trouble struct {
	reason Reason
	since  time.Time
}

// How long trouble is remembered. deadLife is long enough that the layers of an image don't each wait
// for a dead host. wrongLife is shorter than kubelet's longest pause between two pulls (five minutes),
// so that kubelet's next pull asks a repaired mirror.
const (
	deadLife  = time.Minute
	wrongLife = 4 * time.Minute
	// troublesKept bounds the memory. A cluster has tens of hosts; containerd may name any.
	troublesKept = 256
	// maxBrokenOff bounds how often sources may break off in one request.
	maxBrokenOff = 8
)

// troubled remembers a fault that another request would meet again: a host that doesn't answer, or a
// repository with wrong bytes. Other faults are about one image.
func (s *state) troubled(at mirror.Pull, f *fault) {
	now := trouble{f.reason, s.now()}
	switch f.reason {
	case ReasonUnknownHost, ReasonUnreachable, ReasonUntrusted, ReasonSlow:
		s.troubles.put(at.Host, now, deadLife)
	case ReasonWrongContent:
		s.troubles.put(at.Host+"/"+at.Repository, now, wrongLife)
	default:
		s.troubles.forget(at.Host)
	}
}

func (s *state) trouble(at mirror.Pull) (trouble, bool) {
	if found, ok := s.troubles.get(at.Host + "/" + at.Repository); ok {
		return found, true
	}
	return s.troubles.get(at.Host)
}

var errNowhere = errors.New("no source has it")

// next returns the source to ask now, and how long its first byte may take. Sources in trouble come
// last, and among them first the one whose trouble is the oldest.
func (p *pull) next() (at mirror.Pull, limit time.Duration, ok bool) {
	for s := &p.sources; len(s.first) > 0; {
		at, s.first = s.first[0], s.first[1:]
		found, troubled := p.state.trouble(at)
		if !troubled || s.len() == 0 {
			return at, p.limit(), true
		}
		if reason := found.reason; reason == ReasonWrongContent {
			p.note(at, faultf(ReasonWrongContent, "a short while ago"), 0)
		} else {
			p.note(at, faultf(ReasonDead, "%s a short while ago", reason), 0)
		}
		s.again = append(s.again, at)
	}
	if len(p.sources.again) == 0 {
		return mirror.Pull{}, 0, false
	}
	oldest := slices.MinFunc(p.sources.again, func(a, b mirror.Pull) int {
		first, _ := p.state.trouble(a)
		second, _ := p.state.trouble(b)
		return first.since.Compare(second.since)
	})
	p.sources.again = slices.DeleteFunc(p.sources.again, func(other mirror.Pull) bool { return other == oldest })
	return oldest, p.limit(), true
}

// limit shares the time that is left with the sources that are left. As long as there is another
// source, no source is waited for long.
func (p *pull) limit() time.Duration {
	left := time.Until(p.deadline)
	if others := p.sources.len(); others > 0 {
		return min(left/time.Duration(others+1), p.resolver.options.FirstByte)
	}
	return left
}

// failed notes why a source was skipped, and whether it is asked again.
func (p *pull) failed(at mirror.Pull, f *fault, took time.Duration) {
	setbacks := 0
	for _, a := range p.attempts {
		if a.Reason == f.reason && (a.Reason == ReasonBrokenOff || a.Source == nameOf(at)) {
			setbacks++
		}
	}
	if f.reason == ReasonSlow && setbacks == 0 && p.sources.len() > 0 ||
		f.reason == ReasonBrokenOff && setbacks < maxBrokenOff {
		p.sources.again = append(p.sources.again, at)
	}
	p.state.troubled(at, f)
	p.note(at, f, took)
	p.sourceDenied = p.sourceDenied || at.Source && f.reason == ReasonDenied
	p.passing = cmp.Or(f.passing, p.passing)
}
