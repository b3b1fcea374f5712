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
	// pod is what containerd showed of the pod's own credentials; nil if it was not asked for them.
	pod *podAccess
	// sourceDenied says that the source let nobody in.
	sourceDenied bool
	// retries is how often a busy place is asked again.
	retries int
	// left is how long places may be waited for in all. It does not count for what flows.
	left time.Duration
	// deadline is when there must be an answer; zero once there is one.
	deadline time.Time
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
	// who was busy; asked again after a pause
	busy []busy
	// who gave wrong bytes for this very digest; asked when not even one of those is left, as the
	// trouble may have been on the way
	last []mirror.Pull
}

// busy is a place that said that it can't answer now.
type busy struct {
	at    mirror.Pull
	since time.Time
	pause time.Duration
}

// maxRetries bounds how often busy places are asked again for one request, and maxPause how long
// each of them may have that waited for.
const (
	maxRetries = 3
	maxPause   = 10 * time.Second
)

// setbacks bounds how often one request starts over in the middle of its bytes.
const setbacks = 8

func newPull(r *Resolver, s *state, t target, request *http.Request) *pull {
	p := &pull{resolver: r, state: s, target: t, method: request.Method, accept: accepted(request)}
	if p.refused = s.rules.Refused(t.registry, t.repository); p.refused != "" {
		return p
	}
	p.kind, p.line.now = places(r, s, t, request.Method)
	p.line.now = r.mismatches.doubtfulLater(p.line.now, t.digest)
	p.left = r.options.Whole + time.Duration(max(len(p.line.now)-1, 0))*(r.options.FirstByte+r.options.Stall)
	if s.rules.Never(t.registry, t.repository) {
		p.forbidden = mirror.CanonicalHost(t.registry)
		// A mirror on the very host of the source says that the host may be asked.
		for _, at := range p.line.now {
			if mirror.CanonicalHost(at.Host) == p.forbidden {
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
		return contract.PullByDigest, of(contract.PullByDigest)
	}
	kind, known := r.kinds.kind(t)
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
func (p *pull) next(ctx context.Context, method string, s span,
	check func(context.Context, mirror.Pull, *reply) error) (*reply, mirror.Pull, error) {
	for p.left > 0 {
		at, firstByte, ok := p.turn(ctx)
		if ctx.Err() != nil {
			p.state.health.unknown(at.Host)
			return nil, at, ctx.Err()
		}
		if !ok {
			return nil, mirror.Pull{}, errNowhere
		}
		began, turn := p.resolver.options.Now(), time.Now()
		limited, done := p.limit(ctx, firstByte)
		answer, err := p.state.ask(limited, p.question(method, at, s, firstByte))
		if err == nil {
			if err = check(limited, at, answer); err != nil {
				answer.close()
			}
		}
		var f *fault
		if err != nil {
			f = faultOf(limited, err)
		}
		done()
		if !p.flows() {
			p.left -= time.Since(turn)
		}
		if ctx.Err() != nil && !isLate(ctx) {
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
		p.failed(at, f, p.resolver.options.Now().Sub(began), firstByte)
	}
	return nil, mirror.Pull{}, errNowhere
}

// flows says whether bytes go to containerd as they come, which may take any time.
func (p *pull) flows() bool { return p.target.endpoint == blobs && p.method != http.MethodHead }

// limit bounds how long one place may take for an answer that is read whole, so that one that trickles
// holds no place for ever, and keeps nobody from the next.
func (p *pull) limit(ctx context.Context, firstByte time.Duration) (context.Context, context.CancelFunc) {
	if p.flows() {
		return ctx, func() {}
	}
	o := p.resolver.options
	whole := o.Whole
	if !o.isLast(firstByte) {
		whole = o.FirstByte + o.Stall
	}
	return context.WithTimeoutCause(ctx, min(whole, p.left), errSlow)
}

var errNowhere = errors.New("no place has it")

// question is what a place is asked. Mirrors are asked for the manifest of a tag even when only its
// digest is wanted: nobody else can say whether they tell the truth. The source is believed; it may
// count how often manifests are fetched.
func (p *pull) question(method string, at mirror.Pull, s span, firstByte time.Duration) question {
	if method == http.MethodHead && p.target.tag != "" && !at.Source {
		method = http.MethodGet
	}
	return question{method: method, at: at, credential: p.credential(at), path: p.target.path(at.Repository),
		accept: p.accept, span: s, firstByte: firstByte, stall: p.resolver.options.Stall, forbidden: p.forbidden}
}

// turn is whose turn it is, and how long to wait for it. As long as there is somebody else to ask,
// nobody is waited for long.
func (p *pull) turn(ctx context.Context) (at mirror.Pull, firstByte time.Duration, ok bool) {
	for len(p.line.now) > 0 {
		at, p.line.now = p.line.now[0], p.line.now[1:]
		switch p.resolver.mismatches.confidence(at, p.target.digest) {
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
		if len(p.line.now)+len(p.line.later)+len(p.line.busy)+len(p.line.last) == 0 {
			return at, p.share(), true
		}
		return at, p.resolver.options.FirstByte, true
	}
	switch l := &p.line; {
	case len(l.later) > 0:
		at, l.later = l.later[0], l.later[1:]
	case len(l.busy) > 0:
		at = l.busy[0].at
		wait(ctx, l.busy[0].pause-time.Since(l.busy[0].since))
		l.busy = l.busy[1:]
	case len(l.last) > 0:
		at, l.last = l.last[0], l.last[1:]
	default:
		return mirror.Pull{}, 0, false
	}
	return at, p.share(), true
}

// share is how long a place may take when it had its turn, or there was never another: what is left, shared with
// those that may have another turn, too.
func (p *pull) share() time.Duration {
	o, left := p.resolver.options, p.resolver.options.LastFirstByte
	if !p.deadline.IsZero() {
		rest := time.Until(p.deadline)
		if !p.flows() {
			rest = min(rest, p.left)
		}
		left = min(left, rest/time.Duration(1+len(p.line.later)+len(p.line.busy)+len(p.line.last)))
	}
	return max(left, o.FirstByte)
}

// isLast says whether a place has no other turn if it needs longer.
func (o Options) isLast(firstByte time.Duration) bool {
	return firstByte > o.FirstByte || o.FirstByte >= o.LastFirstByte
}

// wait is over after a while, or when ctx ends.
func wait(ctx context.Context, after time.Duration) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// failed notes why a registry was skipped, and whether it is worth another try.
func (p *pull) failed(at mirror.Pull, f *fault, took, firstByte time.Duration) {
	if f.isDeath() {
		p.state.health.failed(at.Host, f.reason)
	} else {
		p.state.health.well(at.Host)
	}
	if f.reason == ReasonSlow && !p.resolver.options.isLast(firstByte) || f.reason == ReasonBrokenOff &&
		p.setbacks() == 0 {
		p.line.later = append(p.line.later, at)
	}
	p.sourceDenied = p.sourceDenied || at.Source && f.reason == ReasonDenied
	if f.passes && p.retries < maxRetries {
		pause := min(max(f.again, p.resolver.options.Pause<<p.retries), maxPause)
		p.line.busy = append(p.line.busy, busy{at, time.Now(), pause})
		p.retries++
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
	p.resolver.records.passed(at.Host, f.reason)
	source := at.Host + "/" + at.Repository
	if f.passes && slices.ContainsFunc(p.attempts, func(a Attempt) bool {
		return a.Source == source && a.Reason == f.reason
	}) {
		return // it is still busy
	}
	p.attempts = append(p.attempts, Attempt{Source: source, Reason: f.reason, Detail: f.detail, Took: took})
}
