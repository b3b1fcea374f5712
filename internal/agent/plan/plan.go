// Package plan answers which steps, in which order, turn a host as it is into a host as it must be.
//
// The reconcile loop and bootstrap carry the steps out. It is pure: a difference of two descriptions.
//
// The order is: what left the manifest goes first, then the environment, then files (programs in use are moved aside, so that services run on
// meanwhile), then all stops in reverse order of the starts, then configurations and starts. A service is thus down only for its own restart.
package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/agent/ledger"
	"github.com/windows-nodes/wmco/internal/agent/target"
	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Kind is what a step does.
type Kind string

// Kinds of steps.
const (
	RemoveService Kind = "RemoveService" // stop it and take it out of the service manager
	SetVariable   Kind = "SetVariable"
	UnsetVariable Kind = "UnsetVariable" // remove a watched variable
	PutBack       Kind = "PutBack"       // give a variable of ours the value that it had before
	WriteFile     Kind = "WriteFile"
	RemoveFile    Kind = "RemoveFile"
	StopService   Kind = "StopService"
	SetService    Kind = "SetService" // create it, or change its configuration
	StartService  Kind = "StartService"
)

// Step is one thing to do.
type Step struct {
	Kind Kind
	// Name of the service or variable, or path of the file.
	Name string
	// Why says in a few words what is not as it should be.
	Why string
}

// Observed is a host as it is.
type Observed struct {
	// Services that exist, among those that the target or the ledger names.
	Services map[string]winos.Service
	// Digests of the files that exist, by path, among those that the target names.
	Digests map[string]string
	// Environment is the system's.
	Environment map[string]string
}

// Plan is the steps, and what keeps others from being taken.
type Plan struct {
	Steps []Step
	// Waiting are things that are not known yet; Conflicts are things of others that are in the way.
	Waiting, Conflicts []*contract.Problem
}

// Diff makes the plan.
func Diff(want target.Target, have Observed, was ledger.Ledger) Plan {
	p := &planner{want: want, have: have, was: was}
	if want.Scope == target.Everything {
		p.obsoleteServices()
	}
	p.environment()
	p.files()
	p.services()
	return p.Plan
}

type planner struct {
	Plan
	want target.Target
	have Observed
	was  ledger.Ledger
}

func (p *planner) step(kind Kind, name, why string) {
	p.Steps = append(p.Steps, Step{kind, name, why})
}

func (p *planner) wait(problem *contract.Problem) {
	same := func(other *contract.Problem) bool { return *other == *problem }
	if !slices.ContainsFunc(p.Waiting, same) {
		p.Waiting = append(p.Waiting, problem)
	}
}

// obsoleteServices are those that we installed and that the target lacks. What somebody else made under the same name since is not ours. Their order
// does not matter: a stop takes running dependants along.
func (p *planner) obsoleteServices() {
	wanted := map[string]bool{}
	for _, s := range p.want.Services {
		wanted[s.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(p.was.Services)) {
		s, exists := p.have.Services[name]
		switch {
		case wanted[name]:
		case exists && !target.Managed(s.Description):
		default:
			p.step(RemoveService, name, "not in the manifest")
		}
	}
}

func (p *planner) environment() {
	have := make(map[string]string, len(p.have.Environment))
	for name, value := range p.have.Environment {
		have[strings.ToLower(name)] = value
	}
	wanted := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(p.want.Environment)) {
		wanted[strings.ToLower(name)] = true
		if value, ok := have[strings.ToLower(name)]; !ok || value != p.want.Environment[name] {
			p.step(SetVariable, name, "has another value")
		}
	}
	watched := map[string]bool{}
	for _, name := range p.want.Watched {
		watched[strings.ToLower(name)] = true
		if _, ok := have[strings.ToLower(name)]; ok && !wanted[strings.ToLower(name)] {
			p.step(UnsetVariable, name, "must not be set")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.was.Environment)) {
		if !wanted[key] && !watched[key] {
			p.step(PutBack, p.was.Environment[key].Name, "not in the manifest")
		}
	}
}

func (p *planner) files() {
	wanted := map[string]bool{}
	for _, f := range p.want.Files {
		wanted[strings.ToLower(f.Path)] = true
		have, exists := p.have.Digests[f.Path]
		switch {
		case f.Waiting != nil:
			p.wait(f.Waiting)
		case !exists:
			p.step(WriteFile, f.Path, "is missing")
		case have != f.Digest:
			p.step(WriteFile, f.Path, "has another content")
		}
	}
	if p.want.Scope != target.Everything {
		return
	}
	for _, path := range p.was.Files {
		if !wanted[strings.ToLower(path)] {
			p.step(RemoveFile, path, "not in the manifest")
		}
	}
}

func (p *planner) services() {
	var usable []target.Service
	blocked := map[string]bool{}
	for _, s := range p.want.Services {
		current, exists := p.have.Services[s.Name]
		_, ours := p.was.Services[s.Name]
		needsBlocked := slices.ContainsFunc(s.Dependencies, func(d string) bool { return blocked[d] })
		switch {
		case exists && !ours && !target.Managed(current.Description):
			p.Conflicts = append(p.Conflicts, contract.NewProblem(contract.ReasonConflictingSoftware, "service %s exists and is not ours", s.Name))
			blocked[s.Name] = true
		case s.Waiting != nil:
			p.wait(s.Waiting)
			blocked[s.Name] = true
		case needsBlocked:
			blocked[s.Name] = true
		default:
			usable = append(usable, s)
		}
	}
	down := p.stops(usable)
	for _, s := range usable {
		current, exists := p.have.Services[s.Name]
		switch {
		case !exists:
			p.step(SetService, s.Name, "is missing")
		case !Equal(current.ServiceConfig, s.ServiceConfig):
			p.step(SetService, s.Name, "has another configuration")
		}
		if !exists || down[s.Name] || current.State != winos.ServiceRunning {
			p.step(StartService, s.Name, "must run")
		}
	}
}

// stops plans which services go down, because their inputs changed, because they hang in a state that is neither up nor down, or because they depend
// on one that does. Services that wait go down with what they depend on, and come back when what they wait for is known.
func (p *planner) stops(usable []target.Service) map[string]bool {
	down := map[string]bool{}
	why := map[string]string{}
	for _, s := range usable { // in the order of starts, so a service comes after all it depends on
		current, exists := p.have.Services[s.Name]
		if !exists || current.State == winos.ServiceStopped {
			continue
		}
		dependency := slices.IndexFunc(s.Dependencies, func(d string) bool { return down[d] })
		switch {
		case p.stale(s, current):
			why[s.Name] = "runs with what was before"
		case current.State == winos.ServiceStopPending || current.State == winos.ServicePaused:
			why[s.Name] = "is " + string(current.State)
		case dependency >= 0:
			why[s.Name] = "depends on " + s.Dependencies[dependency]
		default:
			continue
		}
		down[s.Name] = true
	}
	for _, s := range slices.Backward(usable) {
		if down[s.Name] {
			p.step(StopService, s.Name, why[s.Name])
		}
	}
	return down
}

// stale says whether a service's process was started before its present inputs were there. A file that has to be written counts, even with the
// content that the ledger knows: the process may have read what stood there meanwhile.
func (p *planner) stale(s target.Service, current winos.Service) bool {
	start := p.was.Services[s.Name]
	if start.Inputs != s.Inputs || (current.PID != 0 && current.PID == start.NotPID) {
		return true
	}
	return slices.ContainsFunc(p.want.Files, func(f target.File) bool {
		return f.Waiting == nil && p.have.Digests[f.Path] != f.Digest && slices.Contains(f.Services, s.Name)
	})
}

// Equal says whether two configurations of a service mean the same to the service manager.
func Equal(a, b winos.ServiceConfig) bool {
	return strings.EqualFold(a.Name, b.Name) && a.Description == b.Description && a.Command == b.Command &&
		sameNames(a.Dependencies, b.Dependencies) && maps.Equal(a.Environment, b.Environment) &&
		slices.Equal(a.Recovery, b.Recovery) && a.RecoveryReset == b.RecoveryReset
}

func sameNames(a, b []string) bool {
	fold := func(names []string) []string {
		folded := make([]string, 0, len(names))
		for _, n := range names {
			folded = append(folded, strings.ToLower(n))
		}
		slices.Sort(folded)
		return folded
	}
	return slices.Equal(fold(a), fold(b))
}
