package mirror

import (
	"maps"
	"slices"
)

// order merges lists of mirrors into one that keeps the order of each, as far as they do not
// contradict each other: a before b in one list is a before b in the result. The result does not
// depend on the order of the lists, and is the one that Linux nodes have: what may come next is
// taken in the order in which it became possible, and by name if that was at once. Where lists
// contradict each other, the first by name goes first.
func order(lists [][]string) []string {
	after := map[string]map[string]bool{} // name → what some list has right after it
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
			ready = append(ready, firstNot(names, done))
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

func firstNot(names []string, done map[string]bool) string {
	return names[slices.IndexFunc(names, func(name string) bool { return !done[name] })]
}
