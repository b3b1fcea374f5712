package resolver

import (
	"context"
	"sync"
)

// shares divides the places for layers: one registry has at most half of them, so that one that is
// slow, or has much to give, leaves room for others.
type shares struct {
	each int
	mu   sync.Mutex
	of   map[string]*share
}

// share is a registry's while somebody uses it.
type share struct {
	places chan struct{}
	users  int
}

func newShares(places int) *shares { return &shares{each: max(1, places/2), of: map[string]*share{}} }

// take waits for a place of a registry's share; release gives it back.
func (s *shares) take(ctx context.Context, registry string) (release func(), err error) {
	s.mu.Lock()
	own := s.of[registry]
	if own == nil {
		own = &share{places: make(chan struct{}, s.each)}
		s.of[registry] = own
	}
	own.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(s.of, registry)
		}
	}
	select {
	case own.places <- struct{}{}:
		return func() { <-own.places; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
