package mirror

import (
	"maps"
	"slices"
)

// order merges lists of mirrors and keeps the order of each list as far as the lists don't contradict each other:
// if a comes before b in one list, a comes before b in the result. The result doesn't depend on the order of the
// lists, and is the same as on Linux nodes. A name is ready when all its predecessors are done. Names are added in
// the order that they become ready, and alphabetically if several become ready at the same time. If the lists
// contradict each other, the first remaining name in alphabetical order is next.
func order(lists [][]string) []string {
	after := map[string]map[string]bool{} // name → its direct successors in any list
	before := map[string]int{}            // name → how many distinct names must come first
	for _, list := range lists {
		for i, name := range list {
			if after[name] == nil {
				after[name] = map[string]bool{}
			}
			if i > 0 && !after[list[i-1]][name] {
				after[list[i-1]][name] = true
				before[name]++
			}
		}
	}
	names := slices.Sorted(maps.Keys(after))
	var ready []string
	for _, name := range names {
		if before[name] == 0 {
			ready = append(ready, name)
		}
	}
	merged := make([]string, 0, len(names))
	done := map[string]bool{}
	for len(merged) < len(names) {
		if len(ready) == 0 {
			first := slices.IndexFunc(names, func(name string) bool { return !done[name] })
			ready = append(ready, names[first])
		}
		name := ready[0]
		ready = ready[1:]
		merged, done[name] = append(merged, name), true
		for _, next := range slices.Sorted(maps.Keys(after[name])) {
			if before[next]--; before[next] == 0 && !done[next] {
				ready = append(ready, next)
			}
		}
	}
	return merged
}
