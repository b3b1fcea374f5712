package resolver

import (
	"context"
	"sync"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// room is the places for requests of one kind. A pod chooses which registry it names, and how slow that
// is. So one host has at most half of them, whatever its port; and a quarter is kept for registries
// that the cluster names, as a pod can have as many others as it likes.
type room struct {
	all     chan struct{} // holds one for each request that is under way
	unnamed chan struct{} // likewise, for registries that the cluster does not name
	each    int
	mu      sync.Mutex
	of      map[string]*share
}

// share is a host's while somebody uses it.
type share struct {
	places chan struct{}
	users  int
}

func newRoom(n int) *room {
	return &room{all: make(chan struct{}, n), unnamed: make(chan struct{}, max(1, n-n/4)), each: max(1, n/2),
		of: map[string]*share{}}
}

// take waits for a place for a registry; release gives it back.
func (r *room) take(ctx context.Context, registry string, named bool) (release func(), err error) {
	own, leave := r.share(registry)
	wanted := []chan struct{}{own.places, r.unnamed, r.all}
	if named {
		wanted = []chan struct{}{own.places, r.all}
	}
	var held []chan struct{}
	release = func() {
		for _, places := range held {
			<-places
		}
		leave()
	}
	for _, places := range wanted {
		select {
		case places <- struct{}{}:
			held = append(held, places)
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}

// share is that of a registry's host, which is to be left in the end.
func (r *room) share(registry string) (own *share, leave func()) {
	host, _ := mirror.SplitHost(mirror.CanonicalHost(registry))
	r.mu.Lock()
	defer r.mu.Unlock()
	own = r.of[host]
	if own == nil {
		own = &share{places: make(chan struct{}, r.each)}
		r.of[host] = own
	}
	own.users++
	return own, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(r.of, host)
		}
	}
}
