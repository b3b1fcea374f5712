package machine

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// plan is what must be done so that the instances are what the Machines say.
type plan struct {
	create []inventory.Entry
	update []update
	// discard are instances whose host is destroyed with its Machine.
	discard []v1alpha1.WindowsInstance
	// lost are instances whose Machine is not among the Machines: it is gone, or is none of ours
	// any more.
	lost []v1alpha1.WindowsInstance
	// pause and resume follow the label with which users keep us away from a Machine.
	pause, resume []v1alpha1.WindowsInstance
	// waits says by Machine why there is no instance of it yet; rejected, why there will be none
	// unless somebody mends it. held are those that wait for an address whose instance leaves, which
	// is a problem if it lasts.
	waits    map[string]string
	rejected map[string]*contract.Problem
	held     map[string]*contract.Problem
}

type update struct {
	instance v1alpha1.WindowsInstance
	entry    inventory.Entry
}

// view is everything that a plan depends on.
type view struct {
	machines  []inventory.Machine
	instances []v1alpha1.WindowsInstance
	// platform is empty while nobody knows it.
	platform contract.Platform
	resolves map[string]bool
}

// decide compares Machines and instances. An instance is removed only when its Machine goes, not
// when the Machine can't be read.
func decide(v view) plan {
	machines := slices.SortedFunc(slices.Values(v.machines), func(a, b inventory.Machine) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.Name, b.Name))
	})
	d := newDecision(v, machines)
	present := map[string]bool{}
	for _, m := range machines {
		present[m.Name] = true
		d.one(m)
	}
	for i := range v.instances {
		if ofMachine(&v.instances[i]) && !present[v.instances[i].Spec.Source.Name] {
			d.lost = append(d.lost, v.instances[i])
		}
	}
	return d.plan
}

type decision struct {
	view
	plan
	named map[string]*v1alpha1.WindowsInstance
	// readings are of Machines that stay, by name; reported tells which addresses these have.
	readings map[string]inventory.Reading
	reported map[string]bool
	// addresses tells which instance has an address, or gets it now.
	addresses map[string]string
}

// newDecision reads the Machines, given in their order, and finds out who has which address.
func newDecision(v view, machines []inventory.Machine) *decision {
	d := &decision{view: v, plan: plan{waits: map[string]string{}, rejected: map[string]*contract.Problem{},
		held: map[string]*contract.Problem{}},
		named: map[string]*v1alpha1.WindowsInstance{}, readings: map[string]inventory.Reading{},
		reported: map[string]bool{}, addresses: map[string]string{}}
	for i := range v.instances {
		d.named[v.instances[i].Name] = &v.instances[i]
	}
	var moves []inventory.Entry
	for _, m := range machines {
		if m.Deleting || m.Ignored || v.platform == "" {
			continue
		}
		reading := inventory.ReadMachine(m, v.platform, v.resolves)
		d.readings[m.Name] = reading
		if reading.Entry == nil {
			continue
		}
		entry := *reading.Entry
		d.reported[strings.ToLower(entry.Address)] = true
		if i := d.named[m.Name]; i != nil && isOf(i, m) && i.DeletionTimestamp.IsZero() &&
			!strings.EqualFold(i.Spec.Address, entry.Address) {
			moves = append(moves, entry)
		}
	}
	// Each round gives up the move of one whose new address somebody keeps, until all that are left
	// can be made at once: two Machines may have swapped their addresses.
	for {
		d.takeAll(moves)
		blocked := slices.IndexFunc(moves,
			func(e inventory.Entry) bool { return d.addresses[strings.ToLower(e.Address)] != e.Name })
		if blocked < 0 {
			return d
		}
		moves = slices.Delete(moves, blocked, blocked+1)
	}
}

// takeAll notes who has which address when these instances move, and no others do. A host that is only
// checked holds none: its check gives way to who joins.
func (d *decision) takeAll(moves []inventory.Entry) {
	clear(d.addresses)
	for i := range d.instances {
		instance := &d.instances[i]
		moving := slices.ContainsFunc(moves, func(e inventory.Entry) bool { return e.Name == instance.Name })
		if !moving && !instance.Spec.PreflightOnly {
			d.take(instance.Spec.Address, instance.Name)
		}
	}
	for _, entry := range moves {
		d.take(entry.Address, entry.Name)
	}
}

// isLost tells of a Machine that failed whose address another reports: the cloud has destroyed its
// host.
func (d *decision) isLost(m inventory.Machine, instance *v1alpha1.WindowsInstance) bool {
	return m.Phase == inventory.MachineFailed && d.reported[strings.ToLower(instance.Spec.Address)]
}

func (d *decision) take(address, name string) {
	if key := strings.ToLower(address); d.addresses[key] == "" {
		d.addresses[key] = name
	}
}

func (d *decision) one(m inventory.Machine) {
	instance := d.named[m.Name]
	mine := instance != nil && ofMachine(instance) && instance.Spec.Source.Name == m.Name
	switch {
	case mine && (m.Deleting || !isHostOf(instance, m) || !m.Ignored && d.isLost(m, instance)):
		if instance.DeletionTimestamp.IsZero() || instance.Spec.RemovalPolicy == v1alpha1.RemovalClean {
			d.discard = append(d.discard, *instance)
		}
		d.waits[m.Name] = "the host that had this name before leaves"
	case m.Deleting:
	case m.Ignored:
		if mine && !instance.Spec.Paused {
			d.pause = append(d.pause, *instance)
		}
		d.waits[m.Name] = "it has the label " + contract.IgnoreLabel
	default:
		if mine && instance.Annotations[contract.IgnoredAnnotation] == "true" {
			d.resume = append(d.resume, *instance)
		}
		d.project(m, instance, mine)
	}
}

// project decides about a Machine that is to be a node.
func (d *decision) project(m inventory.Machine, instance *v1alpha1.WindowsInstance, mine bool) {
	if d.platform == "" {
		d.waits[m.Name] = "the platform of the cluster is not known yet"
		return
	}
	reading := d.readings[m.Name]
	switch {
	case reading.Problem != nil:
		d.rejected[m.Name] = reading.Problem
	case reading.Entry == nil:
		d.waits[m.Name] = reading.Wait
	case instance != nil && !mine:
		d.rejected[m.Name] = contract.NewProblem(contract.ReasonMachineNameTaken,
			"WindowsInstance %s exists and was not made from the Machine of that name", instance.Name)
	case mine && !instance.DeletionTimestamp.IsZero():
		d.waits[m.Name] = "its instance leaves, and is made anew afterwards"
	default:
		d.place(*reading.Entry, instance)
	}
}

// place makes or changes the instance of an entry, unless another one has its address. Who has an
// instance keeps it, whatever is older: it may be a node already. Machines that have none come in
// the order in which they were made.
func (d *decision) place(entry inventory.Entry, instance *v1alpha1.WindowsInstance) {
	holder := d.addresses[strings.ToLower(entry.Address)]
	moved := instance == nil || !strings.EqualFold(instance.Spec.Address, entry.Address)
	taken := moved && holder != "" && holder != entry.Name
	switch {
	case taken && d.leaves(holder):
		d.waits[entry.Name] = "instance " + holder + " has its address and leaves"
		d.held[entry.Name] = contract.NewProblem(contract.ReasonAddressDuplicate,
			"Machine %s waits for the address %s: WindowsInstance %s has it still, and is being removed", entry.Name,
			entry.Address, holder)
	case taken:
		d.rejected[entry.Name] = contract.NewProblem(contract.ReasonAddressDuplicate,
			"Machine %s has the address %s, which instance %s has already", entry.Name, entry.Address, holder)
	case instance == nil:
		d.create = append(d.create, entry)
		d.take(entry.Address, entry.Name)
	case !equality.Semantic.DeepEqual(projected(instance.Spec, entry), instance.Spec):
		d.update = append(d.update, update{instance: *instance, entry: entry})
	}
}

// leaves says whether an instance leaves, or is told to now.
func (d *decision) leaves(name string) bool {
	instance := d.named[name]
	if instance == nil || !instance.DeletionTimestamp.IsZero() {
		return instance != nil
	}
	return slices.ContainsFunc(d.machines,
		func(m inventory.Machine) bool { return isOf(instance, m) && d.isLost(m, instance) })
}

func ofMachine(instance *v1alpha1.WindowsInstance) bool {
	return instance.Spec.Source != nil && instance.Spec.Source.Kind == v1alpha1.SourceMachine
}

// isHostOf says whether the host of an instance is that of the Machine of its name: the Machine is the one
// that the instance was made from, or was made anew for the same host, as from a backup. An ID that ends with the
// Machine's name, as those of Azure and Google Cloud do, tells no host from the one before it.
func isHostOf(instance *v1alpha1.WindowsInstance, m inventory.Machine) bool {
	return instance.Spec.Source.UID == m.UID ||
		m.ProviderID != "" && strings.EqualFold(m.ProviderID, instance.Spec.ProviderID) &&
			!strings.EqualFold(path.Base(m.ProviderID), m.Name)
}

// projected is a spec with everything that the Machine tells, and nothing else, changed.
func projected(spec v1alpha1.WindowsInstanceSpec, entry inventory.Entry) v1alpha1.WindowsInstanceSpec {
	spec.Address, spec.Port, spec.Username = entry.Address, entry.Port, entry.User
	spec.Hostname, spec.ProviderID, spec.Addresses = entry.Machine.Hostname, entry.Machine.ProviderID,
		entry.Machine.Addresses
	spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: entry.Name, UID: entry.Machine.UID}
	return spec
}
