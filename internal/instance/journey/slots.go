package journey

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Slots limits how many hosts join, or try a key, at the same time. Waiting hosts get slots in order of arrival.
type Slots struct {
	mu      sync.Mutex
	limit   int
	holders map[types.NamespacedName]bool
	waiters []types.NamespacedName
	wake    func(types.NamespacedName)
}

// NewSlots returns Slots with this limit. The Slots call the function `wake` for each waiter that may try again. They
// hold no lock during the call.
func NewSlots(limit int, wake func(types.NamespacedName)) *Slots {
	return &Slots{limit: limit, holders: map[types.NamespacedName]bool{}, wake: wake}
}

// SetLimit changes the limit. A lower limit takes no slot away.
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
func (s *Slots) Acquire(key types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holders[key] {
		return true
	}
	index := slices.Index(s.waiters, key)
	ahead := index
	if index < 0 {
		ahead = len(s.waiters)
	}
	if len(s.holders)+ahead < s.limit {
		s.holders[key] = true
		if index >= 0 {
			s.waiters = slices.Delete(s.waiters, index, index+1)
		}
		return true
	}
	if index < 0 {
		s.waiters = append(s.waiters, key)
	}
	return false
}

// Release releases a host's slot, or removes the host from the queue.
func (s *Slots) Release(key types.NamespacedName) {
	s.mu.Lock()
	delete(s.holders, key)
	if index := slices.Index(s.waiters, key); index >= 0 {
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

// The method `next` returns the waiters that can now get a free slot.
func (s *Slots) next() []types.NamespacedName {
	free := max(0, s.limit-len(s.holders))
	return slices.Clone(s.waiters[:min(free, len(s.waiters))])
}

func (s *Slots) wakeAll(keys []types.NamespacedName) {
	for _, key := range keys {
		s.wake(key)
	}
}
