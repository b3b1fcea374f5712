package sim

import (
	"maps"
	"slices"
	"sync"
)

// containers maps each pod to the IDs of its running containers.
type containers struct {
	mu sync.Mutex
	of map[string][]string
}

// SetContainers replaces the list of running containers of a pod. Without IDs, it removes the pod. If m is nil,
// SetContainers does nothing: processes in Wine have no Machine.
func (m *Machine) SetContainers(pod string, ids ...string) {
	if m == nil {
		return
	}
	m.containers.mu.Lock()
	defer m.containers.mu.Unlock()
	if len(ids) == 0 {
		delete(m.containers.of, pod)
		return
	}
	if m.containers.of == nil {
		m.containers.of = map[string][]string{}
	}
	m.containers.of[pod] = ids
}

// Containers returns the IDs of all running containers, sorted.
func (m *Machine) Containers() []string {
	if m == nil {
		return nil
	}
	m.containers.mu.Lock()
	defer m.containers.mu.Unlock()
	return slices.Sorted(func(yield func(string) bool) {
		for ids := range maps.Values(m.containers.of) {
			for _, id := range ids {
				if !yield(id) {
					return
				}
			}
		}
	})
}
