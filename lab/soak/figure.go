package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Figures are what is counted at a calm point.
type Figures struct {
	Operator Process `json:"operator"`
	// Lab is this process with all simulated hosts.
	Lab Process `json:"lab"`
	// Stacks are goroutines of the lab, and with it of all simulated daemons, by the function that they
	// are for.
	Stacks map[string]int `json:"stacks"`
	// Objects in the API server, by kind.
	Objects map[string][]string `json:"-"`
	// Hosts by their names.
	Hosts map[string]Host `json:"-"`
	// Counts are the lengths of what is too long for a report: objects by kind, and of all hosts
	// together.
	Counts map[string]int `json:"counts"`
}

// Process is what a program holds.
type Process struct {
	Goroutines int `json:"goroutines"`
	// Descriptors are open files and sockets, and Resident is its memory in bytes. Both are 0 where
	// there is no /proc.
	Descriptors int   `json:"descriptors"`
	Resident    int64 `json:"residentBytes"`
}

// Host is what a simulated host holds.
type Host struct {
	// Files are paths, and Others whatever else it has: services, certificates, variables, networks.
	Files, Others []string
	// Open are handles of files, and Processes those that run.
	Open, Processes int
}

// Leak is a figure that grew by more than it may.
type Leak struct {
	What string `json:"what"`
	From int64  `json:"from"`
	To   int64  `json:"to"`
	// More names some of what was not there before.
	More []string `json:"more,omitempty"`
}

// String is one line for a terminal.
func (l Leak) String() string {
	line := fmt.Sprintf("%s grew from %d to %d", l.What, l.From, l.To)
	if len(l.More) > 0 {
		line += ": " + strings.Join(l.More, ", ")
	}
	return line
}

// slack is by how much a figure may grow: a fixed part, which idle connections and the like need, and
// one in parts of a hundred.
type slack struct{ fixed, percent int64 }

// What figures may grow by. Memory is what garbage collection leaves it at; descriptors and goroutines
// hold connections that are kept for the next request.
func slacks() (goroutines, descriptors, resident, stack slack) {
	return slack{20, 10}, slack{20, 10}, slack{48 << 20, 30}, slack{8, 20}
}

func (s slack) exceeded(from, to int64) bool { return to > from+s.fixed+from*s.percent/100 }

// Leaks compares two calm points. Objects and files may not grow at all, but for files of logs.
func Leaks(before, after Figures) (leaks []Leak) {
	goroutines, descriptors, resident, stack := slacks()
	number := func(what string, from, to int64, may slack) {
		if may.exceeded(from, to) {
			leaks = append(leaks, Leak{What: what, From: from, To: to})
		}
	}
	for _, p := range []struct {
		name     string
		from, to Process
	}{{"the operator", before.Operator, after.Operator}, {"the lab", before.Lab, after.Lab}} {
		number("goroutines of "+p.name, int64(p.from.Goroutines), int64(p.to.Goroutines), goroutines)
		number("descriptors of "+p.name, int64(p.from.Descriptors), int64(p.to.Descriptors), descriptors)
		number("resident bytes of "+p.name, p.from.Resident, p.to.Resident, resident)
	}
	for _, name := range slices.Sorted(maps.Keys(after.Stacks)) {
		number("goroutines of the lab in "+name, int64(before.Stacks[name]), int64(after.Stacks[name]), stack)
	}
	for _, kind := range slices.Sorted(maps.Keys(after.Objects)) {
		leaks = append(leaks, grown("objects "+kind, before.Objects[kind], after.Objects[kind], 0)...)
	}
	for _, name := range slices.Sorted(maps.Keys(after.Hosts)) {
		leaks = append(leaks, leaksOf(name, before.Hosts[name], after.Hosts[name])...)
	}
	return leaks
}

// rotated is how many more files of logs a host may have: each of its ten services may begin another.
const rotated = 10

// held is how many more handles, or processes, a host may have at the moment at which it is looked at.
const held = 3

func leaksOf(name string, before, after Host) (leaks []Leak) {
	from, to := byDirectory(before.Files), byDirectory(after.Files)
	for _, dir := range slices.Sorted(maps.Keys(to)) {
		may := 0
		switch {
		case under(dir, contract.DirLog):
			may = rotated
		case under(dir, contract.DirCNIConfig):
			may = 1 // the hybrid overlay's certificate of before its first renewal: the daemon keeps two
		}
		leaks = append(leaks, grown("files of "+name+" in "+dir, from[dir], to[dir], may)...)
	}
	leaks = append(leaks, grown("services, certificates and the like of "+name, before.Others, after.Others, 0)...)
	for _, n := range []struct {
		what     string
		from, to int
	}{{"open handles", before.Open, after.Open}, {"processes", before.Processes, after.Processes}} {
		if n.to > n.from+held {
			leaks = append(leaks, Leak{What: n.what + " of " + name, From: int64(n.from), To: int64(n.to)})
		}
	}
	return leaks
}

// under says whether one directory is another or below it, in whatever letter case.
func under(dir, other string) bool {
	return strings.HasPrefix(strings.ToLower(dir)+`\`, strings.ToLower(other)+`\`)
}

// byDirectory sorts paths by the directory that they lie in.
func byDirectory(paths []string) map[string][]string {
	by := map[string][]string{}
	for _, path := range paths {
		dir := path[:max(0, strings.LastIndex(path, `\`))]
		by[dir] = append(by[dir], path)
	}
	return by
}

// named is how many of what is new are named.
const named = 5

// grown says that a list is longer by more than it may, and names what is new.
func grown(what string, before, after []string, may int) []Leak {
	if len(after) <= len(before)+may {
		return nil
	}
	fresh := slices.DeleteFunc(slices.Clone(after), func(one string) bool { return slices.Contains(before, one) })
	return []Leak{{What: what, From: int64(len(before)), To: int64(len(after)), More: fresh[:min(named, len(fresh))]}}
}

// count fills in Counts.
func (f *Figures) count() {
	f.Counts = map[string]int{}
	for kind, all := range f.Objects {
		f.Counts["objects "+kind] = len(all)
	}
	for _, h := range f.Hosts {
		f.Counts["files of all hosts"] += len(h.Files)
		f.Counts["services, certificates and the like of all hosts"] += len(h.Others)
		f.Counts["open handles of all hosts"] += h.Open
		f.Counts["processes of all hosts"] += h.Processes
	}
}
