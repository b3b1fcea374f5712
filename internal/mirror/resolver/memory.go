package resolver

import (
	"container/list"
	"sync"
	"time"
)

// memory holds the most recently used values for a while, and never more than it has room for. It
// is safe for concurrent use.
type memory[K comparable, V any] struct {
	mu    sync.Mutex
	room  int
	now   func() time.Time
	byKey map[K]*list.Element
	order *list.List // of *remembered[K, V], the most recently used in front
}

type remembered[K comparable, V any] struct {
	key   K
	value V
	until time.Time
}

func newMemory[K comparable, V any](room int, now func() time.Time) *memory[K, V] {
	return &memory[K, V]{room: room, now: now, byKey: map[K]*list.Element{}, order: list.New()}
}

// get is the value of key, or false if none is remembered any more.
func (m *memory[K, V]) get(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.look(key)
}

// put remembers value for a time, in place of what was there.
func (m *memory[K, V]) put(key K, value V, life time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set(key, value, life)
}

// change replaces key's value (the zero value if there is none) by what f makes of it.
func (m *memory[K, V]) change(key K, life time.Duration, f func(V) V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, _ := m.look(key)
	m.set(key, f(old), life)
}

// forget drops key.
func (m *memory[K, V]) forget(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byKey[key]; ok {
		m.drop(e)
	}
}

func (m *memory[K, V]) look(key K) (V, bool) {
	var none V
	e, ok := m.byKey[key]
	if !ok {
		return none, false
	}
	entry := e.Value.(*remembered[K, V])
	if !m.now().Before(entry.until) {
		m.drop(e)
		return none, false
	}
	m.order.MoveToFront(e)
	return entry.value, true
}

func (m *memory[K, V]) set(key K, value V, life time.Duration) {
	until := m.now().Add(life)
	if e, ok := m.byKey[key]; ok {
		entry := e.Value.(*remembered[K, V])
		entry.value, entry.until = value, until
		m.order.MoveToFront(e)
		return
	}
	if m.order.Len() >= m.room {
		m.drop(m.order.Back())
	}
	m.byKey[key] = m.order.PushFront(&remembered[K, V]{key: key, value: value, until: until})
}

func (m *memory[K, V]) drop(e *list.Element) {
	delete(m.byKey, m.order.Remove(e).(*remembered[K, V]).key)
}
