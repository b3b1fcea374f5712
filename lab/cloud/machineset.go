package cloud

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/internal/policy"
)

// DeleteAnnotation marks the Machines that a MachineSet deletes first when it scales down.
const DeleteAnnotation = "machine.openshift.io/delete-machine"

// The type sets keeps the number of Machines of each MachineSet.
type sets struct {
	client.Client
	// live reads without a cache, so that no Machine is created twice.
	live client.Reader
	// spoil returns the fault of the next Machine of a set.
	spoil func(set string) Fault
}

// Reconcile creates and deletes the Machines of one MachineSet, and updates its status.
func (s *sets) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	set := &machinev1beta1.MachineSet{}
	if err := s.Get(ctx, request.NamespacedName, set); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !set.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // the garbage collector deletes its Machines
	}
	all, err := s.machinesOf(ctx, set)
	if err != nil {
		return reconcile.Result{}, err
	}
	staying := slices.DeleteFunc(slices.Clone(all),
		func(m machinev1beta1.Machine) bool { return !m.DeletionTimestamp.IsZero() })
	missing := int(ptr.Deref(set.Spec.Replicas, 1)) - len(staying)
	for range missing {
		if err = s.Create(ctx, s.newMachine(set)); err != nil {
			return reconcile.Result{}, fmt.Errorf("creating a machine of set %s: %w", set.Name, err)
		}
	}
	for _, machine := range surplus(staying, -missing) {
		if err = s.Delete(ctx, &machine); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("deleting machine %s: %w", machine.Name, err)
		}
	}
	return s.count(ctx, set, staying)
}

func (s *sets) machinesOf(ctx context.Context, set *machinev1beta1.MachineSet) ([]machinev1beta1.Machine, error) {
	selector, err := metav1.LabelSelectorAsSelector(&set.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("reading the selector of set %s: %w", set.Name, err)
	}
	list := &machinev1beta1.MachineList{}
	if err = s.live.List(ctx, list, client.InNamespace(set.Namespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing the machines of set %s: %w", set.Name, err)
	}
	return slices.DeleteFunc(list.Items, func(m machinev1beta1.Machine) bool {
		return !metav1.IsControlledBy(&m,
			set)
	}), nil
}

func (s *sets) newMachine(set *machinev1beta1.MachineSet) *machinev1beta1.Machine {
	template := set.Spec.Template
	machine := &machinev1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: set.Name + "-" + utilrand.String(5),
			Labels: maps.Clone(template.Labels), Annotations: maps.Clone(template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set,
				machinev1beta1.GroupVersion.WithKind("MachineSet"))},
		},
		Spec: *template.Spec.DeepCopy(),
	}
	if fault := s.spoil(set.Name); fault != FaultNone {
		metav1.SetMetaDataAnnotation(&machine.ObjectMeta, FaultAnnotation, string(fault))
	}
	return machine
}

// surplus selects the Machines to delete in the order of the machine API: marked Machines, failed Machines, Machines
// without a node, other Machines.
func surplus(machines []machinev1beta1.Machine, count int) []machinev1beta1.Machine {
	if count <= 0 {
		return nil
	}
	sorted := slices.SortedStableFunc(slices.Values(machines), func(a, b machinev1beta1.Machine) int {
		return cmp.Compare(weight(&a), weight(&b))
	})
	return sorted[:min(count, len(sorted))]
}

// weight returns how important a Machine is: Machines with a lower weight are deleted first.
func weight(machine *machinev1beta1.Machine) int {
	_, marked := machine.Annotations[DeleteAnnotation]
	switch {
	case marked:
		return 0
	case ptr.Deref(machine.Status.Phase, "") == machinev1beta1.PhaseFailed:
		return 1
	case machine.Status.NodeRef == nil:
		return 2
	}
	return 3
}

// The method count writes the status. If a Node hasn't been Ready for long enough, count requeues.
func (s *sets) count(ctx context.Context, set *machinev1beta1.MachineSet,
	machines []machinev1beta1.Machine) (reconcile.Result, error) {
	wanted := set.DeepCopy()
	wanted.Status.ObservedGeneration = set.Generation
	wanted.Status.Replicas = int32(len(machines))
	wanted.Status.FullyLabeledReplicas, wanted.Status.ReadyReplicas, wanted.Status.AvailableReplicas = 0, 0, 0
	template := labels.SelectorFromSet(set.Spec.Template.Labels)
	again := time.Duration(0)
	for _, machine := range machines {
		if template.Matches(labels.Set(machine.Labels)) {
			wanted.Status.FullyLabeledReplicas++
		}
		since, ok, err := s.readySince(ctx, &machine)
		if err != nil {
			return reconcile.Result{}, err
		}
		if !ok {
			continue
		}
		wanted.Status.ReadyReplicas++
		if left := time.Until(since.Add(time.Duration(set.Spec.MinReadySeconds) * time.Second)); left > 0 &&
			set.Spec.MinReadySeconds > 0 {
			again = max(again, left)
			continue
		}
		wanted.Status.AvailableReplicas++
	}
	if equal(wanted.Status, set.Status) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	if err := s.Status().Patch(ctx, wanted, client.MergeFrom(set)); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("writing the status of set %s: %w", set.Name, err)
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// readySince returns when the Node of a Machine became Ready, or false if the Node isn't Ready.
func (s *sets) readySince(ctx context.Context, machine *machinev1beta1.Machine) (since time.Time, ok bool, err error) {
	if machine.Status.NodeRef == nil {
		return time.Time{}, false, nil
	}
	node := &corev1.Node{}
	if err = s.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node); err != nil {
		return time.Time{}, false, client.IgnoreNotFound(err)
	}
	if !policy.IsReady(node) {
		return time.Time{}, false, nil
	}
	return policy.ReadyCondition(node).LastTransitionTime.Time, true, nil
}

var _ reconcile.Reconciler = (*sets)(nil)
