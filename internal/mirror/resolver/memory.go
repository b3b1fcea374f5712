package resolver

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
)

// memory stores a limited number of values, each for a limited time. A new value displaces the least recently used one.
// An expired value is freed when it is requested or displaced. memory is safe for concurrent use.
type memory[K comparable, V any] struct {
	cache *cache.LRUExpireCache
}

func newMemory[K comparable, V any](room int) *memory[K, V] {
	return &memory[K, V]{cache: cache.NewLRUExpireCache(room)}
}

// get returns the value of key. If the value is missing or has expired, get returns false.
func (m *memory[K, V]) get(key K) (V, bool) {
	value, ok := m.cache.Get(key)
	found, _ := value.(V)
	return found, ok
}

func (m *memory[K, V]) put(key K, value V, life time.Duration) { m.cache.Add(key, value, life) }

func (m *memory[K, V]) forget(key K) { m.cache.Remove(key) }
