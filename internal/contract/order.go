package contract

import (
	"cmp"
	"slices"
)

// StartOrder lists the services in their start order. A service comes after every service that it depends on. Apart
// from that, lower priorities come first, then names by the alphabet. Services stop in the reverse order.
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
