package machine

import (
	"cmp"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// If another instance still has the address of a Machine after leavingTime, this counts as a problem. If a host is
// destroyed, the cloud may give its address to a new Machine at once, and the operator deletes the old instance within
// seconds.
const leavingTime = time.Minute

type plan struct {
	create []newcomer
	change []change
	// leave contains instances whose Machine is being deleted, is not in the cache, or has another host.
	leave []*v1alpha1.WindowsInstance
	// waits contains the reasons why Machines have no instance yet, by the Machine's name. An administrator may have to
	// solve the problems in findings.
	waits    map[string]string
	findings []finding
}

// newcomer is a Machine that needs an instance.
type newcomer struct {
	machine inventory.Machine
	spec    v1alpha1.WindowsInstanceSpec
}

type change struct{ instance, wanted *v1alpha1.WindowsInstance }

// view contains all inputs of a plan.
type view struct {
	machines  []inventory.Machine
	instances []v1alpha1.WindowsInstance
	platform  contract.Platform
	resolves  map[string]bool
}

type decision struct {
	view
	plan
	// named contains the instances, and present contains the Machines, each by name.
	named   map[string]*v1alpha1.WindowsInstance
	present map[string]inventory.Machine
	// readings contains the result of reading each Machine, except Machines that are being deleted or ignored. It is
	// empty while the platform is unknown.
	readings map[string]inventory.Reading
	// addresses maps each address to the name of the instance that has it, or that gets it in this plan.
	addresses map[string]string
}

// decide compares Machines and instances. It removes an instance if its Machine is deleted, but not if the Machine
// can't be read. A Machine with an instance keeps its address, because it may already be a node. The other Machines get
// their addresses in the order of their creation.
func decide(v view) plan {
	d := &decision{view: v, plan: plan{waits: map[string]string{}}, named: map[string]*v1alpha1.WindowsInstance{},
		present: map[string]inventory.Machine{}, readings: map[string]inventory.Reading{},
		addresses: map[string]string{}}
	for _, m := range v.machines {
		d.present[m.Name] = m
		if !m.Deleting && !m.Ignored && v.platform != "" {
			d.readings[m.Name] = inventory.ReadMachine(m, v.platform, v.resolves)
		}
	}
	for i := range v.instances {
		instance := &v.instances[i]
		d.named[instance.Name] = instance
		if !d.moves(instance) && !instance.Spec.PreflightOnly { // a preflight-only instance reserves no address
			d.take(instance.Spec.Address, instance.Name)
		}
	}
	slices.SortFunc(d.machines, func(a, b inventory.Machine) int {
		return cmp.Or(cmp.Compare(d.newness(a), d.newness(b)), a.CreatedAt.Compare(b.CreatedAt),
			strings.Compare(a.Name, b.Name))
	})
	for _, m := range d.machines {
		d.one(m)
	}
	for i := range v.instances {
		if instance := &v.instances[i]; ofMachine(instance) {
			if _, there := d.present[instance.Spec.Source.Name]; !there {
				d.removes(instance)
			}
		}
	}
	return d.plan
}

// newness sorts Machines with an instance before other Machines.
func (d *decision) newness(m inventory.Machine) int {
	if i := d.named[m.Name]; i != nil && isOf(i, m) {
		return 0
	}
	return 1
}

// The method `moves` reports whether the Machine of an instance now has a different address. Such an instance gives up
// its old address, because two Machines may have swapped their addresses.
func (d *decision) moves(i *v1alpha1.WindowsInstance) bool {
	if !ofMachine(i) || !i.DeletionTimestamp.IsZero() {
		return false
	}
	entry := d.readings[i.Spec.Source.Name].Entry
	return entry != nil && isOf(i, d.present[i.Spec.Source.Name]) && !strings.EqualFold(i.Spec.Address, entry.Address)
}

func (d *decision) take(address, name string) {
	if key := strings.ToLower(address); d.addresses[key] == "" {
		d.addresses[key] = name
	}
}

// The method `removes` adds an instance to the list `leave`, unless a removal without a cleanup has already begun.
func (d *decision) removes(instance *v1alpha1.WindowsInstance) {
	if instance.DeletionTimestamp.IsZero() || instance.Spec.RemovalPolicy == v1alpha1.RemovalClean {
		d.leave = append(d.leave, instance)
	}
}

func (d *decision) one(m inventory.Machine) {
	instance := d.named[m.Name]
	mine := instance != nil && ofMachine(instance) && instance.Spec.Source.Name == m.Name
	switch {
	case mine && (m.Deleting || !isHostOf(instance, m)):
		d.removes(instance)
		d.waits[m.Name] = "the host that had this name before is being removed"
		return
	case m.Deleting:
		return
	}
	var wanted *v1alpha1.WindowsInstance
	if mine {
		wanted = instance.DeepCopy()
	}
	if m.Ignored {
		d.waits[m.Name] = "it has the label " + contract.IgnoreLabel
		if mine && !wanted.Spec.Paused {
			pause(wanted)
		}
	} else {
		if mine && wanted.Annotations[contract.IgnoredAnnotation] == "true" {
			delete(wanted.Annotations, contract.IgnoredAnnotation)
			wanted.Spec.Paused = false
		}
		d.project(m, instance, wanted)
	}
	if mine && !equality.Semantic.DeepEqual(wanted, instance) {
		d.change = append(d.change, change{instance, wanted})
	}
}

func pause(i *v1alpha1.WindowsInstance) {
	metav1.SetMetaDataAnnotation(&i.ObjectMeta, contract.IgnoredAnnotation, "true")
	i.Spec.Paused = true
}

// project decides about a Machine that should become a node. wanted is the desired state of the Machine's instance, or
// nil. instance is any instance with the Machine's name, or nil.
func (d *decision) project(m inventory.Machine, instance, wanted *v1alpha1.WindowsInstance) {
	reading, known := d.readings[m.Name]
	switch {
	case !known:
		d.waits[m.Name] = "the platform of the cluster is not known yet"
	case reading.Problem != nil:
		f := finding{machine: m, problem: reading.Problem}
		if reading.Problem.Reason == contract.ReasonMachineAddressUnusable {
			f.lasts = policy.FirstBoot // a vSphere Machine has no address, only a name, until VMware Tools run
			if m.NodeRef != "" {
				f.lasts = math.MaxInt64 // the Machine is a node already; only DNS fails
			}
		}
		d.findings = append(d.findings, f)
	case reading.Entry == nil:
		d.waits[m.Name] = reading.Wait
	case instance != nil && wanted == nil:
		d.reject(m, contract.ReasonMachineNameTaken, 0, "WindowsInstance %s exists and was not made from the Machine "+
			"of that name", instance.Name)
	case wanted != nil && !wanted.DeletionTimestamp.IsZero():
		d.waits[m.Name] = "its old WindowsInstance is being removed; the operator creates a new one afterwards"
	default:
		d.assign(m, *reading.Entry, wanted)
	}
}

func (d *decision) reject(m inventory.Machine, reason contract.Reason, lasts time.Duration, format string,
	args ...any) {
	d.findings = append(d.findings, finding{machine: m, problem: contract.NewProblem(reason, format, args...),
		lasts: lasts})
}

// assign creates or changes the instance of a Machine, unless another instance has the address in entry.
func (d *decision) assign(m inventory.Machine, entry inventory.Entry, wanted *v1alpha1.WindowsInstance) {
	d.take(entry.Address, entry.Name)
	holder := d.addresses[strings.ToLower(entry.Address)]
	isFree := holder == entry.Name || wanted != nil && strings.EqualFold(wanted.Spec.Address, entry.Address)
	switch {
	case !isFree && d.named[holder] != nil && !d.named[holder].DeletionTimestamp.IsZero():
		d.reject(m, contract.ReasonAddressDuplicate, leavingTime,
			"Machine %s waits for the address %s: WindowsInstance %s has it still, and is being removed", entry.Name,
			entry.Address, holder)
		d.findings[len(d.findings)-1].quiet = true
	case !isFree:
		d.reject(m, contract.ReasonAddressDuplicate, leavingTime,
			"Machine %s has the address %s, which instance %s has already", entry.Name, entry.Address, holder)
	case wanted == nil:
		d.create = append(d.create, newcomer{m, projected(v1alpha1.WindowsInstanceSpec{}, entry)})
	default:
		wanted.Spec = projected(wanted.Spec, entry)
	}
}

func ofMachine(instance *v1alpha1.WindowsInstance) bool {
	return instance.Spec.Source != nil && instance.Spec.Source.Kind == v1alpha1.SourceMachine
}

// isOf reports whether an instance was created from exactly this Machine, not from an earlier one with the same name.
func isOf(instance *v1alpha1.WindowsInstance, m inventory.Machine) bool {
	return ofMachine(instance) && instance.Spec.Source.Name == m.Name && instance.Spec.Source.UID == m.UID
}

// isHostOf reports whether an instance and the Machine of its name belong to the same host. If a user created the
// Machine again for the same host, for example from a backup, both have the same provider ID. Exception: on Azure and
// Google Cloud, a provider ID ends with the Machine's name, so an equal ID proves nothing.
func isHostOf(instance *v1alpha1.WindowsInstance, m inventory.Machine) bool {
	return instance.Spec.Source.UID == m.UID ||
		m.ProviderID != "" && strings.EqualFold(m.ProviderID, instance.Spec.ProviderID) &&
			!strings.EqualFold(path.Base(m.ProviderID), m.Name)
}

// The function `projected` returns the spec with all data from the Machine.
func projected(spec v1alpha1.WindowsInstanceSpec, entry inventory.Entry) v1alpha1.WindowsInstanceSpec {
	spec.Address, spec.Port, spec.Username = entry.Address, entry.Port, entry.User
	spec.Hostname, spec.ProviderID, spec.Addresses = entry.Machine.Hostname, entry.Machine.ProviderID,
		entry.Machine.Addresses
	spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: entry.Name, UID: entry.Machine.UID}
	return spec
}
