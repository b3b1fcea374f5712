package resolver

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// memory stores the most recently used values for a limited time, up to a maximum number. It is safe for concurrent
// use.
type memory[K comparable, V any] struct {
	cache *cache.LRUExpireCache
}

type clockFunc func() time.Time

func (now clockFunc) Now() time.Time { return now() }

func newMemory[K comparable, V any](room int, now func() time.Time) *memory[K, V] {
	return &memory[K, V]{cache: cache.NewLRUExpireCacheWithClock(room, clockFunc(now))}
}

// get returns the value of key, or false if there is none or it has expired.
func (m *memory[K, V]) get(key K) (V, bool) {
	value, ok := m.cache.Get(key)
	found, _ := value.(V)
	return found, ok
}

// put stores value for a time and replaces an earlier one. The value expires exactly at the end of that time.
func (m *memory[K, V]) put(key K, value V, life time.Duration) { m.cache.Add(key, value, life-1) }

// forget deletes key.
func (m *memory[K, V]) forget(key K) { m.cache.Remove(key) }
