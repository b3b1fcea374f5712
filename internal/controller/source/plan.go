package source

import (
	"strings"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

type plan struct {
	create   []inventory.Entry
	update   []update
	remove   []v1alpha1.WindowsInstance
	rejected []inventory.Rejected
}

type update struct {
	instance v1alpha1.WindowsInstance
	entry    inventory.Entry
}

// decide compares entries and instances. It removes instances of deleted entries, and keeps instances of invalid ones.
func decide(entries []inventory.Entry, rejected []inventory.Rejected, instances []v1alpha1.WindowsInstance) plan {
	p := plan{rejected: rejected}
	named, taken := index(instances)
	kept := map[string]bool{}
	for _, r := range rejected {
		kept[r.Name] = true
	}
	for _, entry := range entries {
		instance, found := named[entry.Name]
		switch {
		case !found && taken[entry.Name] != "":
			p.rejected = append(p.rejected,
				inventory.Rejected{Key: entry.Address, Name: entry.Name, Problem: contract.NewProblem(
					contract.ReasonAddressDuplicate, "WindowsInstance %s has the address %s already", taken[entry.Name],
					entry.Address)})
		case !found:
			p.create = append(p.create, entry)
		case !ours(instance):
			p.rejected = append(p.rejected,
				inventory.Rejected{Key: entry.Address, Name: entry.Name, Problem: contract.NewProblem(
					contract.ReasonAddressDuplicate,
					"WindowsInstance %s exists and was not made from windows-instances", entry.Name)})
		case !strings.EqualFold(instance.Spec.Address, entry.Address):
			if instance.DeletionTimestamp.IsZero() { // after the deletion, the entry gets a new instance
				p.remove = append(p.remove, instance)
			}
		case differs(instance, entry): // also during a removal, because the operator must reach the host
			p.update = append(p.update, update{instance: instance, entry: entry})
		}
		kept[entry.Name] = true
	}
	for _, instance := range instances {
		if ours(instance) && !kept[instance.Name] && instance.DeletionTimestamp.IsZero() {
			p.remove = append(p.remove, instance)
		}
	}
	return p
}

// index returns all instances by name. `taken` maps each address to an instance that has it and doesn't come from the
// list. A preflight-only instance owns no address.
func index(instances []v1alpha1.WindowsInstance) (named map[string]v1alpha1.WindowsInstance, taken map[string]string) {
	named, taken = map[string]v1alpha1.WindowsInstance{}, map[string]string{}
	for _, instance := range instances {
		named[instance.Name] = instance
		if !ours(instance) && !instance.Spec.PreflightOnly {
			taken[strings.ToLower(instance.Spec.Address)] = instance.Name
		}
	}
	return named, taken
}

func ours(instance v1alpha1.WindowsInstance) bool {
	return instance.Spec.Source != nil && instance.Spec.Source.Kind == v1alpha1.SourceConfigMap
}

// The function `differs` reports whether the instance's spec must be changed to match the entry. Without a host key in
// the entry, the host key in the instance stays, because a user may have set it there.
func differs(instance v1alpha1.WindowsInstance, entry inventory.Entry) bool {
	return instance.Spec.Username != entry.User || instance.Spec.Port != entry.Port ||
		entry.HostKey != "" && instance.Spec.HostKey != entry.HostKey
}
