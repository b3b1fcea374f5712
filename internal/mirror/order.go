package mirror

import (
	"maps"
	"slices"
)

// order merges lists of mirrors. If A comes before B in one list and no list contradicts this, A comes before B in the
// result. The result doesn't depend on the order of the lists, and is the same as on Linux nodes. A name is ready as
// soon as all names that directly precede it in a list have been added. order adds names in the sequence in which they
// become ready. If several names become ready at the same time, it adds them alphabetically. If no name is ready
// because the lists contradict each other, it adds the first remaining name in alphabetical order.
func order(lists [][]string) []string {
	after := map[string]map[string]bool{} // name → the names that directly follow it in any list
	before := map[string]int{}            // name → how many names directly before it are missing in the result
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
