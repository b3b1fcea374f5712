package plan

import (
	"maps"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Kind is the type of a step.
type Kind string

// Kinds of steps.
const (
	Restrict      Kind = "Restrict" // let only Administrators open a file or directory
	AddRoot       Kind = "AddRoot"  // trust a CA
	SetVariable   Kind = "SetVariable"
	UnsetVariable Kind = "UnsetVariable" // remove a watched variable
	PutBack       Kind = "PutBack"       // restore the previous value of a variable
	WriteFile     Kind = "WriteFile"
	Point         Kind = "Point" // replace the CA of the API server in a kubeconfig
	StopService   Kind = "StopService"
	RemoveService Kind = "RemoveService" // stop the service and delete it
	RemoveNetwork Kind = "RemoveNetwork" // remove an HNS network of pods with its endpoints
	SetService    Kind = "SetService"    // create the service, or change its configuration
	StartService  Kind = "StartService"
	RemoveFile    Kind = "RemoveFile"
	RemoveRoot    Kind = "RemoveRoot" // remove a CA that the daemon added
)

// Step is one change of the host.
type Step struct {
	Kind Kind
	// Name is the name of the service, variable or network, the path of the file, or the fingerprint of the
	// certificate.
	Name string
	// Why describes in a few words what is wrong.
	Why string
	// Want is a digest of the desired content. It is empty if there is only one possible content.
	Want string
}

// Observed is the actual state of a host.
type Observed struct {
	// Services are the existing services that are desired or that are in the state file.
	Services map[string]winos.Service
	// Sane maps each service to the ID of the process that ran when the service last had the desired configuration.
	Sane map[string]uint32
	// Digests maps the paths of existing desired files to their digests. If a file has changed since it was read, its
	// entry is a text that no digest equals.
	Digests map[string]string
	// Unreadable maps the paths of unreadable files to their problems. No step is planned for such a file.
	Unreadable map[string]*contract.Problem
	// Absent lists the missing files that services require.
	Absent map[string]bool
	// StaleKubeconfigs lists the kubeconfigs that need another CA of the API server.
	StaleKubeconfigs map[string]bool
	// Loose lists files and directories that other users can access although only Administrators may.
	Loose       []string
	Environment map[string]string
	// Roots contains the fingerprints of the certificates in the root store. It is nil if the store could not be read.
	Roots map[string]bool
	// Held returns true if a step must not be taken now, because another program undoes it every time. If Held is nil,
	// no step is held.
	Held func(Step) bool
}

// Plan is the result of Diff: steps, and problems that prevent other steps.
type Plan struct {
	Steps []Step
	// Waiting lists unknown values. Conflicts lists objects of other programs that have the same names as ours.
	Waiting, Conflicts []*contract.Problem
}

// Diff computes the steps that change the host from `have` to `want`. `was` is the record of earlier changes.
func Diff(want Desired, have Observed, was state.Changes) Plan {
	p := &planner{want: want, have: have, was: was, unwritten: map[string]bool{}, pointed: map[string]bool{}}
	p.rights()
	p.newRoots()
	p.environment()
	p.files()
	p.kubeconfigs()
	p.services()
	if want.Scope == Everything {
		p.obsoleteFiles()
		p.obsoleteRoots()
	}
	return p.Plan
}

type planner struct {
	Plan
	want Desired
	have Observed
	was  state.Changes
	// `unwritten` maps a path to true if the file is unreadable, or if its content is wrong and no step writes it.
	unwritten map[string]bool
	// `pointed` contains the services whose kubeconfig gets another CA.
	pointed map[string]bool
}

// step adds a step to the plan, unless Observed.Held forbids it. It reports whether the step is in the plan.
func (p *planner) step(step Step) bool {
	if p.have.Held != nil && p.have.Held(step) {
		return false
	}
	p.Steps = append(p.Steps, step)
	return true
}

func (p *planner) wait(problem *contract.Problem) {
	same := func(other *contract.Problem) bool { return *other == *problem }
	if !slices.ContainsFunc(p.Waiting, same) {
		p.Waiting = append(p.Waiting, problem)
	}
}

func (p *planner) rights() {
	for _, path := range p.have.Loose {
		p.step(Step{Kind: Restrict, Name: path, Why: "may be opened by others"})
	}
}

// newRoots plans to add missing certificates. A certificate in the store stays unchanged, whoever added it.
func (p *planner) newRoots() {
	if p.have.Roots == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(p.want.Roots)) {
		if !p.have.Roots[name] {
			p.step(Step{Kind: AddRoot, Name: name, Why: "is missing"})
		}
	}
}

func (p *planner) obsoleteRoots() {
	if p.have.Roots == nil {
		return
	}
	for _, der := range p.was.Certificates {
		if name := Fingerprint(der); p.want.Roots[name] == nil {
			p.step(Step{Kind: RemoveRoot, Name: name, Why: "not in the manifest"})
		}
	}
}

// obsoleteServices plans the removal of services that the daemon installed and that are no longer desired. If another
// program has since created a service with the same name, obsoleteServices ignores this service. The order of the
// removals doesn't matter, because a stop includes running dependants.
func (p *planner) obsoleteServices() {
	wanted := map[string]bool{}
	for _, s := range p.want.Services {
		wanted[s.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(p.was.Services)) {
		s, exists := p.have.Services[name]
		switch {
		case wanted[name]:
		case exists && !contract.IsManaged(s.Description):
		default:
			p.step(Step{Kind: RemoveService, Name: name, Why: "not in the manifest"})
		}
	}
}

// obsoleteNetworks plans the removal of the pod networks of other revisions. Such a network must be removed after the
// stop of the service that created it, and before the start of the service that creates the new network. Otherwise the
// two networks would conflict, because both use the addresses of the Node's subnet.
func (p *planner) obsoleteNetworks() {
	for _, name := range p.was.Networks {
		if name != p.want.Network {
			p.step(Step{Kind: RemoveNetwork, Name: name, Why: "not in the manifest"})
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
			p.step(Step{Kind: SetVariable, Name: name, Why: "has another value",
				Want: digestOf(p.want.Environment[name])})
		}
	}
	watched := map[string]bool{}
	for _, name := range p.want.Watched {
		watched[strings.ToLower(name)] = true
		if _, ok := have[strings.ToLower(name)]; ok && !wanted[strings.ToLower(name)] {
			p.step(Step{Kind: UnsetVariable, Name: name, Why: "must not be set"})
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.was.Environment)) {
		if !wanted[key] && !watched[key] {
			p.step(Step{Kind: PutBack, Name: p.was.Environment[key].Name, Why: "not in the manifest"})
		}
	}
}

func (p *planner) files() {
	for _, f := range p.want.Files {
		have, exists := p.have.Digests[f.Path]
		step := Step{Kind: WriteFile, Name: f.Path, Want: f.Digest}
		switch {
		case f.Waiting != nil:
			p.wait(f.Waiting)
			continue
		case p.have.Unreadable[f.Path] != nil:
			p.unwritten[f.Path] = true
			continue
		case !exists:
			step.Why = "is missing"
		case have != f.Digest:
			step.Why = "has different content"
		default:
			continue
		}
		p.unwritten[f.Path] = !p.step(step)
	}
}

func (p *planner) kubeconfigs() {
	for _, f := range p.want.Kubeconfigs {
		step := Step{Kind: Point, Name: f.Path, Why: "has another CA of the API server", Want: f.Digest}
		if !p.have.StaleKubeconfigs[f.Path] || !p.step(step) {
			continue
		}
		for _, name := range f.Services {
			p.pointed[name] = true
		}
	}
}

func (p *planner) obsoleteFiles() {
	// Never remove the daemon's own program.
	wanted := map[string]bool{strings.ToLower(contract.PathDaemon): true}
	for _, f := range p.want.Files {
		wanted[strings.ToLower(f.Path)] = true
	}
	for _, path := range p.was.Files {
		unknown := p.want.RegistryUnknown && contract.Within(contract.DirRegistries, path)
		if !wanted[strings.ToLower(path)] && !unknown {
			p.step(Step{Kind: RemoveFile, Name: path, Why: "not in the manifest"})
		}
	}
}

func (p *planner) services() {
	var usable []Service
	blocked := map[string]bool{}
	for _, s := range p.want.Services {
		current, exists := p.have.Services[s.Name]
		_, ours := p.was.Services[s.Name]
		switch {
		case exists && !ours && !contract.IsManaged(current.Description):
			p.Conflicts = append(p.Conflicts,
				contract.NewProblem(contract.ReasonConflictingSoftware, "service %s exists and is not ours", s.Name))
			blocked[s.Name] = true
		case s.Waiting != nil:
			p.wait(s.Waiting)
			blocked[s.Name] = true
		case p.lacks(s, blocked):
			blocked[s.Name] = true
		default:
			usable = append(usable, s)
		}
	}
	down := p.stops(usable)
	if p.want.Scope == Everything {
		p.obsoleteServices()
		p.obsoleteNetworks()
	}
	for _, s := range usable {
		current, exists := p.have.Services[s.Name]
		if !p.configure(s) {
			continue // the service would run with a configuration that another program has set
		}
		if !exists || down[s.Name] || current.State != winos.ServiceRunning {
			p.step(Step{Kind: StartService, Name: s.Name, Why: "must run", Want: s.Inputs})
		}
	}
}

// configure plans the configuration of a service. It reports whether the service has the desired configuration after
// the plan. A wrong start type alone doesn't change this result, because the start type doesn't affect the process.
func (p *planner) configure(s Service) bool {
	current, exists := p.have.Services[s.Name]
	set := Step{Kind: SetService, Name: s.Name, Want: digestOf(s.ServiceConfig)}
	switch {
	case !exists:
		set.Why = "is missing"
	case !Equal(current.ServiceConfig, s.ServiceConfig):
		set.Why = "has another configuration"
	case current.NoAutoStart:
		set.Why = "does not start at boot"
		p.step(set)
		return true
	default:
		return true
	}
	return p.step(set)
}

// `lacks` returns true if a service can't start, because its required file is missing or a dependency can't start.
func (p *planner) lacks(s Service, blocked map[string]bool) bool {
	return p.have.Absent[s.RequiresFile] ||
		slices.ContainsFunc(s.Dependencies, func(d string) bool { return blocked[d] })
}

// `stops` adds the steps that stop services. A service is stopped if `stale` or `astray` returns true, if it is
// stopping or paused, or if it depends on a service that this plan stops. Each stop also includes dependants that wait
// for a value. They start again when the value is known.
func (p *planner) stops(usable []Service) map[string]bool {
	down := map[string]bool{}
	why := map[string]string{}
	for _, s := range usable { // in start order: dependencies come first
		current, exists := p.have.Services[s.Name]
		if !exists || current.State == winos.ServiceStopped {
			continue
		}
		dependency := slices.IndexFunc(s.Dependencies, func(d string) bool { return down[d] })
		switch {
		case p.stale(s, current):
			why[s.Name] = "runs with what was before"
		case p.astray(s, current):
			why[s.Name] = "may run with another configuration"
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
			p.step(Step{Kind: StopService, Name: s.Name, Why: why[s.Name], Want: s.Inputs})
		}
	}
	return down
}

// `stale` returns true if a service's process may have started with other inputs than the desired ones. A file that
// must be written makes the process stale even if the state file records the same inputs, because the process may have
// read the wrong content.
func (p *planner) stale(s Service, current winos.Service) bool {
	start := p.was.Services[s.Name]
	if p.pointed[s.Name] || start.Inputs != s.Inputs || (current.PID != 0 && current.PID == start.NotPID) {
		return true
	}
	return slices.ContainsFunc(p.want.Files, func(f File) bool {
		return f.Waiting == nil && !p.unwritten[f.Path] && p.have.Digests[f.Path] != f.Digest &&
			slices.Contains(f.Services, s.Name)
	})
}

// `astray` returns true if another program changed the command or environment of a service, and the service may have
// started since the change. A process that started before the change still has the right configuration.
func (p *planner) astray(s Service, current winos.Service) bool {
	if current.Command == s.Command && maps.Equal(current.Environment, s.Environment) {
		return false
	}
	set := Step{Kind: SetService, Name: s.Name, Want: digestOf(s.ServiceConfig)}
	if p.have.Held != nil && p.have.Held(set) {
		return false
	}
	return current.PID == 0 || p.have.Sane[s.Name] != current.PID
}

// Equal reports whether two configurations of a service are the same for the service manager.
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
