package blueprint

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Drains reports whether a node must be drained before it changes from one manifest to another. A drain is necessary if
// a program that pods depend on changes, or if such a program's configuration changes. A change of the environment (for
// example, a proxy) or of log limits restarts programs while the containers keep running.
func Drains(from, to contract.Manifest) bool {
	to.EnvironmentVars, to.ConfidentialEnvironment = from.EnvironmentVars, from.ConfidentialEnvironment
	return len(Restarts(quiet(from), quiet(to))) > 0
}

// quiet returns a manifest without its logging options.
func quiet(m contract.Manifest) contract.Manifest {
	logs := func(word string) bool {
		return slices.ContainsFunc([]string{"log-file", "log-level", "logfile", "loglevel", "flush-interval", "v="},
			func(flag string) bool {
				return strings.HasPrefix(strings.TrimLeft(word, "-"), flag) && word[0] == '-'
			})
	}
	m.Services = slices.Clone(m.Services)
	for i := range m.Services {
		m.Services[i].Command = strings.Join(slices.DeleteFunc(strings.Fields(m.Services[i].Command), logs), " ")
	}
	return m
}

// Restarts returns the sorted names of the disruptive services that a node must restart or stop to change from one
// manifest to another. A restart affects pods, so such a change needs a slot in the rollout budget.
func Restarts(from, to contract.Manifest) (names []string) {
	before, after := disruptive(from), disruptive(to)
	for name, s := range before {
		if t, ok := after[name]; !ok || !sameProcess(s, t) || environmentDiffers(from, to) {
			names = append(names, name)
		}
	}
	files := func(m contract.Manifest) map[string]contract.File {
		all := make(map[string]contract.File, len(m.Files))
		for _, f := range m.Files {
			all[f.Path] = f
		}
		return all
	}
	old, current := files(from), files(to)
	for path := range current {
		if sameContent(old[path], current[path]) {
			continue
		}
		for _, name := range append(slices.Clone(old[path].Services), current[path].Services...) {
			if _, ok := before[name]; ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// sameContent reports whether two files have the same content on a node.
func sameContent(a, b contract.File) bool {
	a.Services, b.Services = nil, nil
	return reflect.DeepEqual(a, b)
}

// sameProcess reports whether a service can keep its process. Log limits are applied outside of the process.
func sameProcess(a, b contract.Service) bool {
	a.Log, b.Log = nil, nil
	return reflect.DeepEqual(a, b)
}

func disruptive(m contract.Manifest) map[string]contract.Service {
	all := make(map[string]contract.Service, len(m.Services))
	for _, s := range m.Services {
		if s.Disruptive {
			all[s.Name] = s
		}
	}
	return all
}

func environmentDiffers(from, to contract.Manifest) bool {
	return from.ConfidentialEnvironment != to.ConfidentialEnvironment ||
		!maps.Equal(from.EnvironmentVars, to.EnvironmentVars)
}
