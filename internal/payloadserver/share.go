package payloadserver

import (
	"context"
	"sync"
	"time"
)

const (
	// perNode is how many blobs one node is sent at once, of all transfers; a daemon asks for one
	// after the other.
	perNode = 2
	// perNodeWaiting is how many requests of one node are taken at all.
	perNodeWaiting = 8
	// leastRate in bytes per second is what a transfer must keep up with, after a time to begin: a
	// connection that takes less holds a place that others need. At it, 100 MB take half an hour.
	leastRate = 64 << 10
	// handshakeTime is how long a client may take until it has shown its certificate and request.
	handshakeTime = 10 * time.Second
)

// shares are what each node takes of the server.
type shares struct {
	mu    sync.Mutex
	nodes map[string]*share
}

type share struct {
	requests int
	turns    chan struct{}
}

// take adds a request of a node; false when it has enough of them. leave ends it.
func (s *shares) take(node string) (turns chan struct{}, leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.nodes == nil {
		s.nodes = map[string]*share{}
	}
	own := s.nodes[node]
	if own == nil {
		own = &share{turns: make(chan struct{}, perNode)}
		s.nodes[node] = own
	}
	if own.requests >= perNodeWaiting {
		return nil, nil, false
	}
	own.requests++
	return own.turns, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if own.requests--; own.requests == 0 {
			delete(s.nodes, node)
		}
	}, true
}

// turn waits for a place; false when there was none in time.
func turn(ctx context.Context, places chan struct{}, timeout <-chan time.Time) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-timeout:
	case <-ctx.Done():
	}
	return false
}

// writeDeadline is until when the next piece must be accepted: within the stall, and in time for
// the least rate of the whole.
func writeDeadline(began, now time.Time, written int64) time.Time {
	rate := began.Add(stall + time.Duration(written)*time.Second/leastRate)
	if next := now.Add(stall); next.Before(rate) {
		return next
	}
	return rate
}
