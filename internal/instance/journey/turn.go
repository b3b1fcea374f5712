package journey

import (
	"cmp"
	"sync"
	"time"
)

// How long one call of a drain may take. A webhook may take up to 30 s, and one that does not answer may be
// ignored after that, so an eviction that was too slow once gets that long when it is its turn again.
const (
	quickCall = 5 * time.Second
	longCall  = 35 * time.Second
)

// turn is where a drain goes on: a pass that takes too long ends before the last pod, and the next one begins
// behind it, so that each pod has its turn. Several passes are a round, in which each pod is tried once.
type turn struct {
	// after is the pod, as <namespace>/<name>, up to which this round came; empty when it begins.
	after string
	// isLong gives the calls of this round more time; sawSlow says that one took longer than it may.
	isLong, sawSlow bool
}

func (t turn) limit() time.Duration {
	if t.isLong {
		return longCall
	}
	return quickCall
}

// next is where the next pass goes on, after one that has seen all pods or not. One that ran out of time before
// it tried any begins anew. The API server lists pods in this order of names.
func (l *podsLeft) next(all bool) turn {
	next := l.turn
	switch {
	case all && !l.untried:
		return turn{isLong: next.sawSlow}
	case l.untried:
		next.after = cmp.Or(l.last, next.after)
	default:
		next.after = l.last
	}
	return next
}

// turns remembers rounds that have not ended, by the name of the node. Where one is lost, or left over from an
// earlier drain, some pods wait for a pass longer.
type turns struct {
	mu    sync.Mutex
	nodes map[string]turn
}

func (t *turns) of(node string) turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.nodes[node]
}

func (t *turns) set(node string, next turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if next == (turn{}) {
		delete(t.nodes, node)
		return
	}
	t.nodes[node] = next
}
