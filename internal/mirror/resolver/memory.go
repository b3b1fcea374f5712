package resolver

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// memory holds the most recently used values for a while, and never more than it has room for. It
// is safe for concurrent use.
type memory[K comparable, V any] struct {
	cache *cache.LRUExpireCache
}

type clockFunc func() time.Time

func (now clockFunc) Now() time.Time { return now() }

func newMemory[K comparable, V any](room int, now func() time.Time) *memory[K, V] {
	return &memory[K, V]{cache: cache.NewLRUExpireCacheWithClock(room, clockFunc(now))}
}

// get is the value of key, or false if none is remembered any more.
func (m *memory[K, V]) get(key K) (V, bool) {
	value, ok := m.cache.Get(key)
	found, _ := value.(V)
	return found, ok
}

// put remembers value for a time, in place of what was there. At the end of that time it has gone.
func (m *memory[K, V]) put(key K, value V, life time.Duration) { m.cache.Add(key, value, life-1) }

// forget drops key.
func (m *memory[K, V]) forget(key K) { m.cache.Remove(key) }
