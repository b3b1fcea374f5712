package soak

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Figures are the counts at a calm point: a time without disruptions.
type Figures struct {
	Operator Process `json:"operator"`
	// Lab is this process with all simulated hosts.
	Lab Process `json:"lab"`
	// Stacks counts the goroutines of the lab, including all simulated daemons, by function.
	Stacks map[string]int `json:"stacks"`
	// Objects in the API server, by kind.
	Objects map[string][]string `json:"-"`
	// Hosts by their names.
	Hosts map[string]Host `json:"-"`
	// Counts are the lengths of the lists that are too long for a report: objects by kind, and the lists of all
	// hosts together.
	Counts map[string]int `json:"counts"`
}

// Process is what a program uses.
type Process struct {
	Goroutines int `json:"goroutines"`
	// Descriptors is the number of open files and sockets, and Resident is the memory in bytes. Without /proc, both
	// are 0.
	Descriptors int   `json:"descriptors"`
	Resident    int64 `json:"residentBytes"`
}

// Host is what exists on a simulated host.
type Host struct {
	// Files are paths. Others are services, certificates, variables and networks.
	Files, Others []string
	// Open is the number of open file handles. Processes is the number of running processes.
	Open, Processes int
}

// Leak is a figure that grew more than allowed.
type Leak struct {
	What string `json:"what"`
	From int64  `json:"from"`
	To   int64  `json:"to"`
	// More names some of the new items.
	More []string `json:"more,omitempty"`
}

// String returns one line for a terminal.
func (l Leak) String() string {
	line := fmt.Sprintf("%s grew from %d to %d", l.What, l.From, l.To)
	if len(l.More) > 0 {
		line += ": " + strings.Join(l.More, ", ")
	}
	return line
}

// slack is the allowed growth of a figure: a fixed part, for idle connections and the like, plus a percentage.
type slack struct{ fixed, percent int64 }

// slacks returns the allowed growth of figures. Memory is measured after garbage collection. Descriptors and
// goroutines include connections that are kept for the next request.
func slacks() (goroutines, descriptors, resident, stack slack) {
	return slack{20, 10}, slack{20, 10}, slack{48 << 20, 30}, slack{8, 20}
}

func (s slack) exceeded(from, to int64) bool { return to > from+s.fixed+from*s.percent/100 }

// Leaks compares two calm points. The numbers of objects and files must not grow. Exception: log files.
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

// rotated is the allowed growth of the number of log files on a host: each of its ten services may begin another
// file.
const rotated = 10

// held is the allowed growth of the number of handles on a host, and of the number of its processes.
const held = 3

func leaksOf(name string, before, after Host) (leaks []Leak) {
	from, to := byDirectory(before.Files), byDirectory(after.Files)
	for _, dir := range slices.Sorted(maps.Keys(to)) {
		may := 0
		switch {
		case under(dir, contract.DirLog):
			may = rotated
		case under(dir, contract.DirCNIConfig):
			may = 1 // the daemon keeps the hybrid overlay's previous certificate
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

// The function under reports whether the path `dir` is equal to the path `other`, or below it. Case doesn't matter.
func under(dir, other string) bool {
	return strings.HasPrefix(strings.ToLower(dir)+`\`, strings.ToLower(other)+`\`)
}

// byDirectory groups paths by directory.
func byDirectory(paths []string) map[string][]string {
	by := map[string][]string{}
	for _, path := range paths {
		dir := path[:max(0, strings.LastIndex(path, `\`))]
		by[dir] = append(by[dir], path)
	}
	return by
}

// named is the maximum number of new items in a Leak.
const named = 5

// If a list grew by more than `may` items, grown returns a Leak with the names of new items.
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
