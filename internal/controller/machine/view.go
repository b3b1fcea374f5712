package machine

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// If a Machine has the annotation excludeDrain, its Node must not be drained.
const excludeDrain = "machine.openshift.io/exclude-node-draining"

// View reads Machines and their sets for other controllers. It can be used before the cluster has the Machine API.
type View struct {
	live client.Reader
	// `cached` is set when the controller is started. `absent` reports that the cluster has no Machine API, or none
	// that the operator may read. Until `cached` or `absent` is set, the Machines are unknown.
	cached atomic.Pointer[client.Reader]
	absent atomic.Bool
	// refused contains the names of Machines that can never join. It is nil until the first plan of the controller.
	refused atomic.Pointer[map[string]bool]
}

// refuse records the Machines with a name that no Windows host can have. A Machine's name can't change, so these
// Machines can never join. All other problems can be corrected.
func (v *View) refuse(findings []finding) {
	names := map[string]bool{}
	for _, f := range findings {
		names[f.machine.Name] = f.problem.Reason == contract.ReasonMachineNameInvalid
	}
	v.refused.Store(&names)
}

// NewView creates a View. Until the controller is started, the View reads from the API server.
func NewView(live client.Reader) *View { return &View{live: live} }

// errUnknown means that the operator doesn't know yet whether the cluster has the Machine API.
var errUnknown = errors.New("it is not known yet whether the cluster has a Machine API")

var (
	_ journey.Origins = (*View)(nil)
	_ rollout.Sets    = (*View)(nil)
)

// Origin implements journey.Origins. If the Machine is not in the cache, Origin reads the API server, because the
// Machine may have lost the label that selects it for the cache.
func (v *View) Origin(ctx context.Context, instance *v1alpha1.WindowsInstance) (journey.Origin, error) {
	source := instance.Spec.Source
	if source == nil || source.Kind != v1alpha1.SourceMachine {
		return journey.Origin{}, nil
	}
	key, machine := client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: source.Name},
		&machinev1beta1.Machine{}
	if cached := v.cached.Load(); cached != nil {
		if err := (*cached).Get(ctx, key, machine); err == nil && machine.UID == source.UID {
			return origin(machine), nil
		}
	}
	err := v.live.Get(ctx, key, machine)
	switch {
	case apierrors.IsNotFound(err), meta.IsNoMatchError(err), err == nil && machine.UID != source.UID:
		return journey.Origin{}, nil
	case err != nil:
		return journey.Origin{}, fmt.Errorf("reading Machine %s: %w", source.Name, err)
	}
	return origin(machine), nil
}

// origin converts a Machine. A failed Machine counts as missing, because its host is destroyed or never existed.
func origin(machine *machinev1beta1.Machine) journey.Origin {
	if machine.DeletionTimestamp.IsZero() && ptr.Deref(machine.Status.Phase, "") == machinev1beta1.PhaseFailed {
		return journey.Origin{}
	}
	_, excluded := machine.Annotations[excludeDrain]
	return journey.Origin{Exists: true, Drains: machine.Status.NodeRef != nil || excluded}
}

// Sets implements rollout.Sets. It returns the MachineSets whose Machines run Windows. A Machine that the operator
// ignores must not count as missing from its set, so Sets reduces the set's replicas.
func (v *View) Sets(ctx context.Context, live bool) ([]policy.Set, error) {
	cached := v.cached.Load()
	switch {
	case cached == nil && v.absent.Load():
		return nil, nil
	case cached == nil:
		return nil, errUnknown
	}
	reader := *cached
	if live {
		reader = v.live
	}
	sets, machines := &machinev1beta1.MachineSetList{}, &machinev1beta1.MachineList{}
	if err := reader.List(ctx, sets, client.InNamespace(contract.MachineAPINamespace)); err != nil {
		return nil, fmt.Errorf("listing MachineSets: %w", err)
	}
	if err := reader.List(ctx, machines, client.InNamespace(contract.MachineAPINamespace),
		client.MatchingLabels(windows())); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	refused := ptr.Deref(v.refused.Load(), nil)
	hosts, ignored := map[types.UID][]policy.SetHost{}, map[types.UID]int{}
	for i := range machines.Items {
		m := fromOpenShift(&machines.Items[i])
		switch {
		case m.Owner == nil || m.Owner.Kind != ownerKind:
		case m.Ignored && !m.Deleting:
			ignored[m.Owner.UID]++
		default:
			hosts[m.Owner.UID] = append(hosts[m.Owner.UID],
				policy.SetHost{Name: m.Name, Node: m.NodeRef, Leaving: m.Deleting,
					Refused: refused[m.Name] && m.NodeRef == ""})
		}
	}
	var all []policy.Set
	for i := range sets.Items {
		set, labels := &sets.Items[i], sets.Items[i].Spec.Template.Labels
		if labels[contract.IgnoreLabel] != "true" &&
			(len(hosts[set.UID]) > 0 || labels[contract.MachineOSLabel] == contract.OSIDWindows) {
			one := setOf(set, hosts[set.UID])
			one.Replicas = max(0, one.Replicas-ignored[set.UID])
			all = append(all, one)
		}
	}
	return all, nil
}

// ownerKind is the only kind of owner that creates a replacement for a deleted Machine.
const ownerKind = "MachineSet"

// setOf converts a MachineSet. If the number of replicas is not set, it is 1.
func setOf(set *machinev1beta1.MachineSet, hosts []policy.SetHost) policy.Set {
	result := policy.Set{UID: set.UID, Name: "MachineSet " + set.Name, Replicas: 1,
		Leaving: !set.DeletionTimestamp.IsZero(), Hosts: hosts, UserData: userDataOf(set)}
	if set.Spec.Replicas != nil {
		result.Replicas = int(*set.Spec.Replicas)
	}
	if text, ok := set.Annotations[contract.MinAvailableAnnotation]; ok {
		minimum := intstr.Parse(text)
		result.Minimum = &minimum
	}
	return result
}
