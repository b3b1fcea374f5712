package sim

import (
	"maps"
	"slices"
	"sync"
)

// containers are the ids of the containers that run, by their pod.
type containers struct {
	mu sync.Mutex
	of map[string][]string
}

// SetContainers says which containers of a pod run; none ends it. A nil Machine, such as a process under
// Wine has, keeps none.
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

// Containers are the ids of all that run, sorted.
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
