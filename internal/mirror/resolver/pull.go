package resolver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// pull is one request of containerd on its way through the places that may have what it asks for.
type pull struct {
	resolver  *Resolver
	state     *state
	target    target
	method    string
	accept    []string
	kind      contract.PullKind // of which pull it is part
	forbidden string
	// refused says why the cluster refuses the image; empty if it does not.
	refused string
	line    line
	// attempts are what failed so far, in order.
	attempts []Attempt
	// served is who the bytes came from in the end; empty if nobody.
	served mirror.Pull
}

// line is the order in which places are asked.
type line struct {
	now []mirror.Pull
	// who failed in a way that may pass, or was not asked because it is dead or a suspect; asked
	// when nobody else is left
	later []mirror.Pull
	// who gave wrong bytes for this very digest; asked when not even one of those is left, as the
	// trouble may have been on the way
	last []mirror.Pull
}

// setbacks bounds how often one request starts over in the middle of its bytes.
const setbacks = 8

func newPull(r *Resolver, s *state, t target, request *http.Request) *pull {
	p := &pull{resolver: r, state: s, target: t, method: request.Method, accept: accepted(request)}
	if p.refused = s.rules.Refused(t.registry, t.repository); p.refused != "" {
		return p
	}
	p.kind, p.line.now = places(r, s, t, request.Method)
	p.line.now = r.liars.doubtfulLater(p.line.now, t.digest)
	if s.rules.Never(t.registry, t.repository) {
		p.forbidden = authority("https", mirror.Pull{Host: t.registry}.Address())
		// A mirror on the very host of the source says that the host may be asked.
		for _, at := range p.line.now {
			if authority("https", at.Address()) == p.forbidden {
				p.forbidden = ""
				break
			}
		}
	}
	return p
}

// places asks the rules. A digest of which it is not known how it came to be asked for may be part
// of either kind of pull: then those for digests come first. The rules see to it that a source that
// must never be contacted is in neither.
func places(r *Resolver, s *state, t target, method string) (contract.PullKind, []mirror.Pull) {
	of := func(kind contract.PullKind) []mirror.Pull {
		return s.rules.Sources(mirror.Reference{Host: t.registry, Repository: t.repository, Kind: kind})
	}
	if t.endpoint == manifests && t.digest != "" && method == http.MethodHead {
		r.lineage.begin(t, t.digest, contract.PullByDigest)
	}
	kind, known := r.lineage.kind(t)
	if known {
		return kind, of(kind)
	}
	both := of(contract.PullByDigest)
	for _, at := range of(contract.PullByTag) {
		if !slices.Contains(both, at) {
			both = append(both, at)
		}
	}
	slices.SortStableFunc(both, func(a, b mirror.Pull) int { return last(a) - last(b) })
	return contract.PullByDigest, both
}

// last is 1 for the source, which mirrors come before.
func last(at mirror.Pull) int {
	if at.Source {
		return 1
	}
	return 0
}

// maxAccept bounds what of the client's Accept headers is passed on.
const maxAccept = 32

func accepted(request *http.Request) []string {
	accept := request.Header["Accept"]
	if len(accept) == 0 || len(accept) > maxAccept {
		return []string{"*/*"}
	}
	return accept
}

// next asks one place after the other for a span of the target, until one gives an answer that
// check has nothing against. Without an answer it says why not: errNowhere when nobody has it, or
// the context's error.
func (p *pull) next(ctx context.Context, method string, s span, check func(mirror.Pull, *reply) error) (*reply,
	mirror.Pull, error) {
	for {
		at, patience, ok := p.turn()
		if !ok {
			return nil, mirror.Pull{}, errNowhere
		}
		began := p.resolver.options.Now()
		answer, err := p.state.ask(ctx, p.question(method, at, s, patience))
		if err == nil {
			if err = check(at, answer); err != nil {
				answer.close()
			}
		}
		if ctx.Err() != nil {
			p.state.health.unknown(at.Host)
			if err == nil {
				answer.close()
			}
			return nil, at, ctx.Err()
		}
		if err == nil {
			p.state.health.well(at.Host)
			return answer, at, nil
		}
		p.failed(at, faultOf(ctx, err), p.resolver.options.Now().Sub(began), patience)
	}
}

var errNowhere = errors.New("no place has it")

// question is what a place is asked. Mirrors are asked for the manifest of a tag even when only its
// digest is wanted: nobody else can say whether they tell the truth. The source is believed; it may
// count how often manifests are fetched.
func (p *pull) question(method string, at mirror.Pull, s span, patience time.Duration) question {
	if method == http.MethodHead && p.target.tag != "" && !at.Source {
		method = http.MethodGet
	}
	return question{method: method, at: at, path: p.target.path(at.Repository), accept: p.accept, span: s,
		patience: patience, stall: p.resolver.options.Stall, forbidden: p.forbidden}
}

// turn is whose turn it is, and how long to wait for it. As long as there is somebody else to ask,
// nobody is waited for long.
func (p *pull) turn() (at mirror.Pull, patience time.Duration, ok bool) {
	for len(p.line.now) > 0 {
		at, p.line.now = p.line.now[0], p.line.now[1:]
		switch p.resolver.liars.guilt(at, p.target.digest) {
		case proven:
			p.note(at, faultf(ReasonWrongContent, "a short while ago"), 0)
			p.line.last = append(p.line.last, at)
			continue
		case suspect:
			if len(p.line.now) > 0 { // else it is next in any case
				p.line.later = append(p.line.later, at)
				continue
			}
		}
		if reason, ok := p.state.health.admits(at.Host); !ok {
			p.note(at, faultf(ReasonDead, "%s a short while ago", reason), 0)
			p.line.later = append(p.line.later, at)
			continue
		}
		if len(p.line.now)+len(p.line.later)+len(p.line.last) == 0 {
			return at, p.resolver.options.Patience, true
		}
		return at, p.resolver.options.FirstByte, true
	}
	for _, rest := range []*[]mirror.Pull{&p.line.later, &p.line.last} {
		if len(*rest) > 0 {
			at, *rest = (*rest)[0], (*rest)[1:]
			return at, p.resolver.options.Patience, true
		}
	}
	return mirror.Pull{}, 0, false
}

// failed notes why a place was passed over, and whether it is worth another try.
func (p *pull) failed(at mirror.Pull, f *fault, took, patience time.Duration) {
	if f.isDeath() {
		p.state.health.failed(at.Host, f.reason)
	} else {
		p.state.health.well(at.Host)
	}
	if f.reason == ReasonSlow && patience < p.resolver.options.Patience || f.reason == ReasonBrokenOff &&
		p.setbacks() == 0 {
		p.line.later = append(p.line.later, at)
	}
	p.note(at, f, took)
}

// broke notes that a place failed after its first bytes. It may be asked again, after all others.
func (p *pull) broke(at mirror.Pull, f *fault) {
	p.note(at, f, 0)
	if f.reason == ReasonBrokenOff && p.setbacks() < setbacks {
		p.line.later = append(p.line.later, at)
	}
}

func (p *pull) setbacks() int {
	n := 0
	for _, a := range p.attempts {
		if a.Reason == ReasonBrokenOff {
			n++
		}
	}
	return n
}

func (p *pull) note(at mirror.Pull, f *fault, took time.Duration) {
	p.attempts = append(p.attempts, Attempt{Source: at.Host + "/" + at.Repository, Reason: f.reason, Detail: f.detail,
		Took: took})
	p.resolver.book.passed(at.Host, f.reason)
}

// slot waits until there is room for one more body.
func (p *pull) slot(ctx context.Context) (release func(), err error) {
	select {
	case p.resolver.streams <- struct{}{}:
		return func() { <-p.resolver.streams }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
