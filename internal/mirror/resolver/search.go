package resolver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"
)

// Containerd waits 30 s for the header of an answer, which no setting of its changes, and then goes past all
// mirrors to what comes next in hosts.toml. Mirrors that hang, or one that must fetch an image first, take longer. So
// a pull goes on by itself until there is an answer, and shortly before that time is up containerd is sent to the same
// address again, with a ticket for what is under way:
//
//	containerd ─► manifest, layer …  ◄─ 307, the same address&ticket=…   after Options.Header
//	containerd ─► that address       ◄─ 307, again                       as long later
//	containerd ─► that address       ◄─ 200, and what it asked for       as soon as it is there

// turns is how many requests one pull may take. Containerd follows nine redirects, and gives up a pull after five
// minutes without a byte.
const turns = 9

// errLate is why a pull ends that no more turns are left for.
var errLate = fmt.Errorf("%w in time", errNowhere)

// search is a pull until there is an answer.
type search struct {
	*pull
	turn int
	stop context.CancelCauseFunc
	// done is closed when the rest is known: how to answer, or why there is none.
	done    chan struct{}
	give    func(http.ResponseWriter) error
	err     error
	failure string // a panic, with its stack
	// release gives back the place that it has, if any.
	release func()
}

// search begins a pull. Whoever has it must serve it, park it, or leave it.
func (r *Resolver) search(request *http.Request, p *pull) *search {
	ctx, stop := context.WithCancelCause(context.WithoutCancel(request.Context()))
	s := &search{pull: p, stop: stop, done: make(chan struct{}), release: func() {}}
	span, limit := request.Header.Get("Range"), turns*r.options.Header
	p.deadline = time.Now().Add(limit)
	go func() {
		defer close(s.done)
		defer func() { // it ends no more than this pull, as in a handler
			if why := recover(); why != nil {
				s.failure = fmt.Sprintf("%v\n%s", why, debug.Stack())
			}
		}()
		timer := time.AfterFunc(limit, func() { stop(errSlow) })
		s.find(ctx, span)
		if !timer.Stop() {
			s.give, s.err = nil, errLate
		}
		p.deadline = time.Time{}
	}()
	return s
}

func (s *search) find(ctx context.Context, span string) {
	release, err := s.resolver.take(ctx, s.pull)
	if err != nil {
		s.err = err
		return
	}
	s.release = release
	switch {
	case s.refused != "":
		s.err = errNowhere
	case s.target.endpoint == manifests:
		s.give, s.err = s.manifest(ctx)
	default:
		s.give, s.err = s.blob(ctx, func() { s.stop(nil) }, span)
	}
}

// leave ends a pull and gives back what it holds.
func (s *search) leave() {
	s.stop(nil)
	<-s.done
	s.release()
	s.state.release()
}

// isLate says whether a pull's time is up, rather than that nobody waits for it.
func isLate(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errSlow) }

// ticket is who may go on waiting: who has the name, and asks for the same.
type ticket struct {
	name, method, span, handle string
	target                     target
}

const ticketQuery = "ticket"

func ticketOf(request *http.Request, t target, handle string) ticket {
	return ticket{name: request.URL.Query().Get(ticketQuery), method: request.Method,
		span: request.Header.Get("Range"), handle: handle, target: t}
}

// park has containerd come back. What it does not come back for ends.
func (r *Resolver) park(w http.ResponseWriter, request *http.Request, s *search, t ticket) {
	t.name = rand.Text()
	r.parked.Store(t, s)
	time.AfterFunc(r.options.Header, func() { r.drop(t) })
	query := request.URL.Query()
	query.Set(ticketQuery, t.name)
	w.Header().Set("Location", request.URL.Path+"?"+query.Encode())
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// claim takes back what was parked; nil if nothing is under that ticket.
func (r *Resolver) claim(t ticket) *search {
	found, _ := r.parked.LoadAndDelete(t)
	s, _ := found.(*search)
	return s
}

func (r *Resolver) drop(t ticket) {
	if s := r.claim(t); s != nil {
		s.leave()
	}
}
