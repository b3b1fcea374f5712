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

// sourcesOf lists the sources of a target. After the first request of a pull, containerd requests by digest, even if
// the pull is by tag. So for these requests, the kind of the repository's latest pull decides which mirrors are listed.
// If that pull is unknown or older than kindLife, sourcesOf lists the mirrors of both kinds.
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

// `begins` reports whether this request starts a pull. This is the case for the HEAD of a manifest.
func (t target) begins(method string) bool {
	return t.endpoint == manifests && method == http.MethodHead
}

// `began` stores the kind of a pull, if this request starts the pull. It is called after a source has answered.
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

// deadLife and wrongLife are how long the resolver remembers that a source is in trouble. deadLife is long enough that
// not every layer of an image waits for a dead host. wrongLife is shorter than kubelet's longest pause between two
// pulls (five minutes), so that kubelet's next pull tries a repaired mirror.
const (
	deadLife  = time.Minute
	wrongLife = 4 * time.Minute
	// troublesKept limits the stored troubles. A cluster has tens of hosts, but the image of a pod may name any host.
	troublesKept = 256
	// maxBrokenOff is how often one request tries a source again after broken connections.
	maxBrokenOff = 8
)

// `troubled` remembers a fault that may affect other requests: a host doesn't answer, or a repository has wrong bytes.
// Other faults concern one image only. They show that the host answers, so `troubled` deletes the host's stored fault.
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

// trouble returns the remembered fault of a source or its host, if any. Such a source is tried after the others.
func (s *state) trouble(at mirror.Location) (Reason, bool) {
	if found, ok := s.troubles.get(at); ok {
		return found, true
	}
	return s.troubles.get(mirror.At(at.Host, ""))
}

var errNowhere = errors.New("no source has it")

// `next` returns the next source, or false. It moves a source in trouble to the end of the queue, once per request.
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

// setbacks counts how often this request has skipped a source for a reason. If reason is empty, all reasons count.
func (p *pull) setbacks(at mirror.Location, reason Reason) (n int) {
	for _, a := range p.attempts {
		if a.Source == at.String() && (reason == "" || a.Reason == reason) {
			n++
		}
	}
	return n
}

// limit returns the maximum time for the next source. It divides the remaining time equally among the remaining
// sources. As long as another source remains, the result is at most FirstByte.
func (p *pull) limit() time.Duration {
	left := time.Until(p.deadline)
	if others := len(p.sources); others > 0 {
		return min(left/time.Duration(others+1), p.resolver.options.FirstByte)
	}
	return left
}

// `failed` records the fault of a source, and adds the source to the queue again if this request should retry it.
func (p *pull) failed(at mirror.Location, f *fault) {
	if n := p.setbacks(at, f.reason); f.reason == ReasonSlow && n == 0 && len(p.sources) > 0 ||
		f.reason == ReasonBrokenOff && n < maxBrokenOff {
		p.sources = append(p.sources, at)
	}
	p.state.troubled(at, f)
	p.note(at, f)
	p.passing = cmp.Or(f.passing, p.passing)
}
