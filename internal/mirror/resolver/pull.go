package resolver

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// pull is one request of containerd while the resolver processes it.
type pull struct {
	resolver *Resolver
	state    *state
	target   target
	method   string
	accept   []string
	// `ranged` reports that containerd requests only the bytes of a layer from offset on. `offset` may be 0.
	ranged bool
	offset int64
	// `forbidden` is a host that no redirect may lead to. If `forbidden` is empty, only the rules restrict redirects.
	forbidden string
	// pod contains the pod's own credentials. If the request has no handle, pod is nil: see podAccess.
	pod *podAccess
	// sources are the registries that may have the target, in the order of the attempts.
	sources []mirror.Location
	// deadline is the latest time for the answer of a source.
	deadline time.Time
	attempts []Attempt
	// `passing` is the status that tells containerd to retry: the last such status of a source, or 0 if there is none.
	passing int
	served  mirror.Location
	// `begun` reports that the header of the answer was sent to containerd.
	begun bool
}

func (r *Resolver) newPull(s *state, t target, request *http.Request, pod *podAccess) *pull {
	p := &pull{resolver: r, state: s, target: t, method: request.Method, accept: request.Header["Accept"], pod: pod}
	if len(p.accept) == 0 || len(p.accept) > maxAccept {
		p.accept = []string{"*/*"}
	}
	if p.isLayer() {
		p.offset, p.ranged = parseRange(request.Header.Get("Range"))
	}
	p.sources = r.sourcesOf(s.Rules, t, p.method)
	isThere := func(at mirror.Location) bool { return at.Host == t.image.Host } // the rules allow the host
	if s.Rules.Never(t.image) && !slices.ContainsFunc(p.sources, isThere) {
		p.forbidden = t.image.Host
	}
	return p
}

// maxAccept is the maximum number of the client's Accept headers that the resolver forwards.
const maxAccept = 32

// isLayer reports whether the answer may be large. Other answers are small, so the resolver reads and checks the whole
// answer before it sends any of it.
func (p *pull) isLayer() bool { return p.target.endpoint == blobs && p.method != http.MethodHead }

// run answers a request. A nil error means that containerd has a complete answer.
func (p *pull) run(ctx context.Context, w http.ResponseWriter) error {
	o := p.resolver.options
	p.deadline = time.Now().Add(o.Header)
	if !p.isLayer() {
		one, err := p.findWhole(ctx)
		if err != nil {
			return err
		}
		return p.giveWhole(ctx, w, one)
	}
	if p.ranged { // the header must say where the range begins, so it can't be sent early
		return p.copyLayer(ctx, w, func() {})
	}
	p.deadline = time.Now().Add(o.LastFirstByte)
	early := sync.OnceFunc(func() {
		p.writeLayerHeader(w, http.StatusOK, -1)
		_ = http.NewResponseController(w).Flush()
	})
	timer := time.AfterFunc(o.Header, early)
	defer timer.Stop()
	return p.copyLayer(ctx, w, func() {
		if !timer.Stop() {
			early() // if the timer is running early, this call waits until early returns
		}
	})
}

// ask tries the sources until `check` accepts an answer. The error is errNowhere, or ctx's error.
func (p *pull) ask(ctx context.Context, offset int64,
	check func(context.Context, mirror.Location, *reply) error) (*reply, mirror.Location, error) {
	for {
		at, ok := p.next()
		limit := p.limit()
		if !ok || limit <= 0 {
			return nil, at, errNowhere
		}
		limited, cancel := ctx, context.CancelFunc(func() {})
		if !p.isLayer() { // The whole answer must arrive in time.
			limited, cancel = context.WithTimeoutCause(ctx, limit, errSlow)
		}
		answer, err := p.question(p.method, at, offset).ask(limited, limit)
		if err == nil {
			if err = check(limited, at, answer); err != nil {
				answer.close()
			}
		}
		switch {
		case ctx.Err() != nil:
			if err == nil {
				answer.close()
			}
			cancel()
			return nil, at, ctx.Err()
		case err == nil:
			cancel()
			p.state.troubles.forget(mirror.At(at.Host, ""))
			return answer, at, nil
		}
		p.failed(at, faultOf(limited, err))
		cancel()
	}
}

// question describes the request that the resolver sends to a registry. If the client requests a tag's digest with
// HEAD, a mirror must send the whole manifest, because only the manifest proves that the digest is right. The image's
// own registry still gets a HEAD, because it is trusted, and because it may limit how often manifests are fetched.
func (p *pull) question(method string, at mirror.Location, offset int64) question {
	if method == http.MethodHead && p.target.tag != "" && at != p.target.image {
		method = http.MethodGet
	}
	return question{pull: p, at: at, method: method, offset: offset}
}

func (p *pull) note(at mirror.Location, f *fault) {
	p.resolver.options.Metrics.skip(at.Host, f.reason)
	p.attempts = append(p.attempts, Attempt{Source: at.String(), Reason: f.reason, Detail: f.detail})
}

var (
	errBroken = errors.New("no source can complete the answer")
	errUnread = errors.New("the client accepts no more bytes")
)

// end finishes a pull. If the client is gone, it breaks the connection. If the image's own registry wants credentials,
// end asks for the pod's credentials. Otherwise it reports and logs the skipped sources. If all failed, it sends the
// error to the client. If an answer has begun but isn't complete, it breaks the connection.
func (p *pull) end(w http.ResponseWriter, request *http.Request, err error) {
	ctx := request.Context()
	log := logr.FromContextOrDiscard(ctx).WithName("resolver").WithValues("image", p.target.name())
	switch {
	case ctx.Err() != nil && err != nil, errors.Is(err, errUnread):
		log.V(1).Info("the client reads no more")
		panic(http.ErrAbortHandler)
	case ctx.Err() != nil, err == nil && len(p.attempts) == 0:
		return
	case errors.Is(err, errNowhere) && p.setbacks(p.target.image, ReasonDenied) > 0 && p.pod == nil && !p.begun:
		challengePod(w, request, p.target, "")
		return
	}
	report := Report{Image: p.target.image.String(), Attempts: p.attempts,
		Refused: p.state.Rules.Refused(p.target.image)}
	if err == nil {
		report.Served = p.served.String()
	} else {
		report.Image = p.target.name()
	}
	if report.IsFailure() {
		p.resolver.options.Metrics.failures.Inc()
	}
	p.resolver.options.OnReport(report)
	log = log.WithValues("attempts", p.attempts)
	switch {
	case err == nil:
		log.Info("registries were skipped", "served", report.Served)
	case p.begun:
		log.Info("pull was interrupted")
		panic(http.ErrAbortHandler) // so that the client knows that the answer isn't complete
	default:
		log.Info("pull failed")
		refuseNowhere(w, p, report)
	}
}
