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

// sources are the registries that may have a target, in the order of the attempts.
type sources struct {
	first []mirror.Pull // not asked yet, in the order of the rules
	// again holds the registries to try when first is empty: they recently failed, were too slow while another source
	// was available, or broke off.
	again []mirror.Pull
}

func (s *sources) len() int { return len(s.first) + len(s.again) }

// sourcesOf lists the sources of a target. After the first request of a pull, containerd requests by digest, even for a
// tag. So the latest pull of a repository decides whether its digests come from mirrors for tags or for digests. After
// a restart of the daemon there is no latest pull, and sourcesOf lists both kinds of mirrors.
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

// begins reports whether this request starts a pull: the HEAD of a manifest.
func (t target) begins(method string) bool {
	return t.endpoint == manifests && method == http.MethodHead
}

// began stores the kind of a pull that a source answered.
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

// trouble is why a source is tried after the others for a while.
type trouble struct {
	reason Reason
	since  time.Time
}

// How long trouble is stored. deadLife is long enough that the layers of an image don't each wait for a dead host.
// wrongLife is shorter than kubelet's longest pause between two pulls (five minutes), so that kubelet's next pull tries
// a repaired mirror.
const (
	deadLife  = time.Minute
	wrongLife = 4 * time.Minute
	// troublesKept bounds the number of stored troubles. A cluster has tens of hosts, but containerd may name any.
	troublesKept = 256
	// maxBrokenOff bounds how often sources may break off in one request.
	maxBrokenOff = 8
)

// troubled stores a fault that would also affect the next request: a host that doesn't answer, or a repository with
// wrong bytes. Other faults concern only one image.
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

// next returns the next source, and the limit for its first byte. Sources in trouble come last, first the one with the
// oldest trouble.
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

// limit divides the remaining time among the remaining sources. As long as there is another source, the limit is at
// most FirstByte.
func (p *pull) limit() time.Duration {
	left := time.Until(p.deadline)
	if others := p.sources.len(); others > 0 {
		return min(left/time.Duration(others+1), p.resolver.options.FirstByte)
	}
	return left
}

// failed records why a source was skipped, and decides whether to try it again.
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
