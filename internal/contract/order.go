package contract

import (
	"cmp"
	"slices"
)

// StartOrder lists the services in the order of their starts: a service comes after all it depends
// on, and otherwise lower priorities come first, then names. Stops happen in the reverse order. The
// manifest must be valid.
func (m Manifest) StartOrder() []Service {
	byName := make(map[string]Service, len(m.Services))
	for _, s := range m.Services {
		byName[s.Name] = s
	}
	sorted := slices.Clone(m.Services)
	slices.SortFunc(sorted, func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
	order := make([]Service, 0, len(sorted))
	placed := make(map[string]bool, len(sorted))
	var place func(s Service)
	place = func(s Service) {
		if placed[s.Name] {
			return
		}
		placed[s.Name] = true
		for _, d := range slices.Sorted(slices.Values(s.Dependencies)) {
			if dependency, ok := byName[d]; ok {
				place(dependency)
			}
		}
		order = append(order, s)
	}
	for _, s := range sorted {
		place(s)
	}
	return order
}

// dependencyCycle finds a circle of dependencies, as the names on it with the first repeated at the
// end, or nil. Several ways to one service are no circle, and every dependency is followed, not
// only the first.
func dependencyCycle(services []Service) []string {
	next := make(map[string][]string, len(services))
	names := make([]string, 0, len(services))
	for _, s := range services {
		next[s.Name] = s.Dependencies
		names = append(names, s.Name)
	}
	slices.Sort(names)
	done := make(map[string]bool, len(services))
	var path []string
	var visit func(name string) []string
	visit = func(name string) []string {
		if i := slices.Index(path, name); i >= 0 {
			return append(slices.Clone(path[i:]), name)
		}
		if done[name] {
			return nil
		}
		path = append(path, name)
		for _, d := range next[name] {
			if d == name {
				continue // reported on its own
			}
			if cycle := visit(d); cycle != nil {
				return cycle
			}
		}
		path = path[:len(path)-1]
		done[name] = true
		return nil
	}
	for _, name := range names {
		if cycle := visit(name); cycle != nil {
			return cycle
		}
	}
	return nil
}
