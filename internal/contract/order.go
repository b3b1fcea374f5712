package contract

import (
	"cmp"
	"slices"
)

// StartOrder lists the services in their start order: lower priorities come first, then names by the alphabet. Services
// stop in the reverse order.
func (m Manifest) StartOrder() []Service {
	return slices.SortedFunc(slices.Values(m.Services), func(a, b Service) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
	})
}
