package resolver

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// memory returns the most recently used values for a limited time, up to a maximum number. An expired value stays in
// memory until it is asked for or newer values displace it. It is safe for concurrent use.
type memory[K comparable, V any] struct {
	cache *cache.LRUExpireCache
}

func newMemory[K comparable, V any](room int) *memory[K, V] {
	return &memory[K, V]{cache: cache.NewLRUExpireCache(room)}
}

// get returns the value of key, or false if there is none or it has expired.
func (m *memory[K, V]) get(key K) (V, bool) {
	value, ok := m.cache.Get(key)
	found, _ := value.(V)
	return found, ok
}

// put stores value for a time and replaces an earlier one.
func (m *memory[K, V]) put(key K, value V, life time.Duration) { m.cache.Add(key, value, life) }

// forget deletes key.
func (m *memory[K, V]) forget(key K) { m.cache.Remove(key) }
