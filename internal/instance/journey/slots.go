package journey

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Slots limits how many hosts join, or try a key, at the same time. Waiting hosts get slots in the order of requests.
type Slots struct {
	mu      sync.Mutex
	limit   int
	holders map[types.UID]bool
	waiters []types.UID
	wake    func(types.UID)
}

// NewSlots returns Slots with this limit. Slots calls wake, without a lock, for each waiter that may try again.
func NewSlots(limit int, wake func(types.UID)) *Slots {
	return &Slots{limit: limit, holders: map[types.UID]bool{}, wake: wake}
}

// SetLimit changes the limit. If there are more holders than the new limit allows, they keep their slots.
func (s *Slots) SetLimit(limit int) {
	s.mu.Lock()
	if s.limit == limit {
		s.mu.Unlock()
		return
	}
	s.limit = limit
	next := s.next()
	s.mu.Unlock()
	s.wakeAll(next)
}

// Acquire takes a slot for a host, or adds the host to the queue. It returns true if the host has a slot.
func (s *Slots) Acquire(id types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders[id] {
		return true
	}
	index := slices.Index(s.waiters, id)
	ahead := index
	if index < 0 {
		ahead = len(s.waiters)
	}
	if len(s.holders)+ahead < s.limit {
		s.holders[id] = true
		if index >= 0 {
			s.waiters = slices.Delete(s.waiters, index, index+1)
		}
		return true
	}
	if index < 0 {
		s.waiters = append(s.waiters, id)
	}
	return false
}

// Release releases a host's slot, or removes the host from the queue. For any other host, it does nothing.
func (s *Slots) Release(id types.UID) {
	s.mu.Lock()
	delete(s.holders, id)
	if index := slices.Index(s.waiters, id); index >= 0 {
		s.waiters = slices.Delete(s.waiters, index, index+1)
	}
	next := s.next()
	s.mu.Unlock()
	s.wakeAll(next)
}

// Held returns the number of hosts that have a slot.
func (s *Slots) Held() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.holders)
}

// next returns the waiters that can now get a free slot.
func (s *Slots) next() []types.UID {
	free := max(0, s.limit-len(s.holders))
	return slices.Clone(s.waiters[:min(free, len(s.waiters))])
}

func (s *Slots) wakeAll(ids []types.UID) {
	for _, id := range ids {
		s.wake(id)
	}
}
