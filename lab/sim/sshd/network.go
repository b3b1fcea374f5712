package sshd

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// network is the network of the host. All connections of the host share it.
type network struct {
	current  atomic.Pointer[snapshot]
	counters counters
	// up carries bytes from the host to its clients, and down carries bytes to the host.
	up, down lane
}

// snapshot is one version of the settings. replaced is closed when there is a newer version.
type snapshot struct {
	Settings
	replaced chan struct{}
	// drops and corruptions are how many more times these faults happen. A negative number means no limit.
	drops, corruptions *atomic.Int64
}

func newSnapshot(s Settings) *snapshot {
	next := &snapshot{Settings: s, replaced: make(chan struct{}), drops: new(atomic.Int64),
		corruptions: new(atomic.Int64)}
	if d := s.Faults.Drop; d != nil {
		next.drops.Store(allowance(d.Times))
	}
	if c := s.Faults.Corrupt; c != nil {
		next.corruptions.Store(allowance(c.Times))
	}
	return next
}

func allowance(times int64) int64 {
	if times == 0 {
		return -1
	}
	return times
}

// spend reports whether a fault may happen once more. If it may, spend counts it.
func spend(left *atomic.Int64) bool {
	for {
		n := left.Load()
		if n < 0 {
			return true
		}
		if n == 0 {
			return false
		}
		if left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

func (n *network) settings() *snapshot { return n.current.Load() }

// The method shaped reports whether the network delays bytes.
func (n *network) shaped() bool {
	s := n.settings()
	return s.Latency > 0 || s.Bandwidth > 0
}

// deliver returns the time of arrival of bytes that enter a lane now.
func (n *network) deliver(l *lane, size int) time.Time {
	s := n.settings()
	return l.reserve(size, s.Bandwidth, time.Now()).Add(s.Latency)
}

// lane is one direction of the host's network card.
type lane struct {
	mu   sync.Mutex
	free time.Time
}

// reserve adds size bytes to the queue of the lane, and returns the time when the last of these bytes will be sent.
func (l *lane) reserve(size int, bandwidth int64, now time.Time) time.Time {
	if bandwidth <= 0 {
		return now
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(size) / float64(bandwidth) * float64(time.Second)))
	return l.free
}

// draw returns how many bytes a connection transfers before it is cut.
func (d *Drop) draw() int64 {
	if !d.Random || d.After <= 0 {
		return d.After
	}
	return rand.Int64N(2 * d.After)
}
