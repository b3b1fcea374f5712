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

// sourcesOf lists the sources of a target. After the first request of a pull, containerd requests by digest, even for a
// tag. So the latest pull of a repository decides whether its digests come from mirrors for tags or for digests. After
// a restart of the daemon there is no latest pull, and sourcesOf lists both kinds of mirrors.
func (r *Resolver) sourcesOf(rules mirror.Rules, t target, method string) []mirror.Location {
	of := func(kind contract.PullKind) []mirror.Location { return rules.Sources(t.image, kind) }
	switch kind, known := r.kinds.get(t.image); {
	case t.tag != "":
		return of(contract.PullByTag)
	case t.begins(method):
		return of(contract.PullByDigest)
	case known:
		return of(kind)
	}
	var mirrors, source []mirror.Location
	for _, at := range append(of(contract.PullByDigest), of(contract.PullByTag)...) {
		switch {
		case at == t.image:
			source = []mirror.Location{at}
		case !slices.Contains(mirrors, at):
			mirrors = append(mirrors, at)
		}
	}
	return append(mirrors, source...)
}

// begins reports whether this request starts a pull: the HEAD of a manifest.
func (t target) begins(method string) bool {
	return t.endpoint == manifests && method == http.MethodHead
}

// began stores the kind of a pull that a source answered.
func (r *Resolver) began(t target, method string) {
	switch {
	case t.tag != "":
		r.kinds.put(t.image, contract.PullByTag, kindLife)
	case t.begins(method):
		r.kinds.put(t.image, contract.PullByDigest, kindLife)
	}
}

const (
	kindsKept = 1024
	kindLife  = 6 * time.Hour
)

// How long trouble is stored. deadLife is long enough that the layers of an image don't each wait for a dead host.
// wrongLife is shorter than kubelet's longest pause between two pulls (five minutes), so that kubelet's next pull tries
// a repaired mirror.
const (
	deadLife  = time.Minute
	wrongLife = 4 * time.Minute
	// troublesKept bounds the number of stored troubles. A cluster has tens of hosts, but containerd may name any.
	troublesKept = 256
	// maxBrokenOff bounds how often one source may break off in one request.
	maxBrokenOff = 8
)

// troubled stores a fault that would also affect the next request: a host that doesn't answer, or a repository with
// wrong bytes. Other faults concern only one image.
func (s *state) troubled(at mirror.Location, f *fault) {
	host := mirror.At(at.Host, "")
	switch f.reason {
	case ReasonUnknownHost, ReasonUnreachable, ReasonUntrusted, ReasonSlow:
		s.troubles.put(host, f.reason, deadLife)
	case ReasonWrongContent:
		s.troubles.put(at, f.reason, wrongLife)
	default:
		s.troubles.forget(host)
	}
}

// trouble returns why a source is tried after the others for a while.
func (s *state) trouble(at mirror.Location) (Reason, bool) {
	if found, ok := s.troubles.get(at); ok {
		return found, true
	}
	return s.troubles.get(mirror.At(at.Host, ""))
}

var errNowhere = errors.New("no source has it")

// next returns the next source. A source in trouble moves to the end of the queue, once per request.
func (p *pull) next() (at mirror.Location, ok bool) {
	for len(p.sources) > 0 {
		at, p.sources = p.sources[0], p.sources[1:]
		reason, troubled := p.state.trouble(at)
		if !troubled || len(p.sources) == 0 || p.setbacks(at, "") > 0 {
			return at, true
		}
		p.note(at, faultf(reason, "a short while ago"))
		p.sources = append(p.sources, at)
	}
	return at, false
}

// setbacks counts how often a source was skipped, for a reason or for any.
func (p *pull) setbacks(at mirror.Location, reason Reason) (n int) {
	for _, a := range p.attempts {
		if a.Source == at.String() && (reason == "" || a.Reason == reason) {
			n++
		}
	}
	return n
}

// limit divides the remaining time among the remaining sources. As long as there is another source, the limit is at
// most FirstByte.
func (p *pull) limit() time.Duration {
	left := time.Until(p.deadline)
	if others := len(p.sources); others > 0 {
		return min(left/time.Duration(others+1), p.resolver.options.FirstByte)
	}
	return left
}

// failed records why a source was skipped, and decides whether to try it again.
func (p *pull) failed(at mirror.Location, f *fault) {
	if n := p.setbacks(at, f.reason); f.reason == ReasonSlow && n == 0 && len(p.sources) > 0 ||
		f.reason == ReasonBrokenOff && n < maxBrokenOff {
		p.sources = append(p.sources, at)
	}
	p.state.troubled(at, f)
	p.note(at, f)
	p.passing = cmp.Or(f.passing, p.passing)
}
