package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// describer writes on MachineSets what the cluster autoscaler has to know of their Nodes when there
// are none.
type describer struct {
	client   client.Client
	machines client.Reader
}

// describe adds the controller that does so.
func (s *starter) describe(machines cache.Cache) error {
	d := &describer{client: s.mgr.GetClient(), machines: machines}
	changed := watch.TypedChanged(func(set *machinev1beta1.MachineSet) []string {
		values := []string{sizeOf(set.Spec.Template.Spec)}
		for _, key := range []string{policy.CapacityCPU, policy.CapacityMemory, policy.CapacityLabels,
			policy.CapacityTaints} {
			values = append(values, set.Annotations[key])
		}
		return values
	})
	joined := watch.TypedChanged(func(m *machinev1beta1.Machine) bool { return m.Status.NodeRef != nil })
	return ctrl.NewControllerManagedBy(s.mgr).Named("capacity").
		WatchesRawSource(source.Kind(machines, &machinev1beta1.Machine{},
			handler.TypedEnqueueRequestsFromMapFunc(all[*machinev1beta1.Machine]), joined)).
		WatchesRawSource(source.Kind(machines, &machinev1beta1.MachineSet{},
			handler.TypedEnqueueRequestsFromMapFunc(all[*machinev1beta1.MachineSet]), changed)).
		Watches(&corev1.Node{}, batch.News(all[client.Object]), builder.WithPredicates(memberNews())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(d)
}

// Reconcile looks at all MachineSets that have a Windows node.
func (d *describer) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	sets, nodes := &machinev1beta1.MachineSetList{}, &corev1.NodeList{}
	if err := d.machines.List(ctx, sets, client.InNamespace(contract.MachineAPINamespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing MachineSets: %w", err)
	}
	if err := d.client.List(ctx, nodes, client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)},
		client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing nodes: %w", err)
	}
	newest, err := d.newest(ctx, nodes.Items)
	if err != nil {
		return ctrl.Result{}, err
	}
	var problems []error
	for i := range sets.Items {
		set, size := &sets.Items[i], readProviderSpec(sets.Items[i].Spec.Template.Spec.ProviderSpec).size()
		if of, exists := newest[kind{set.UID, size.Text}]; exists {
			missing := map[string]*string{}
			for key, value := range policy.Capacity(set.Annotations, of.node, of.made, size) {
				missing[key] = &value
			}
			problems = append(problems, d.write(ctx, set, missing))
			continue
		}
		problems = append(problems, d.write(ctx, set, policy.OutgrownCapacity(set.Annotations, size.Text)))
	}
	return ctrl.Result{}, errors.Join(problems...)
}

// kind is a MachineSet, and a size that it asked the cloud for.
type kind struct {
	set  types.UID
	size string
}

// sizeOf is empty where it can't be read.
func sizeOf(spec machinev1beta1.MachineSpec) string {
	return readProviderSpec(spec.ProviderSpec).String()
}

// sample is a Node of a MachineSet, and when its Machine was made.
type sample struct {
	node *corev1.Node
	made time.Time
}

// newest gives for each MachineSet and size the Node of its youngest Machine that has a Ready one.
func (d *describer) newest(ctx context.Context, nodes []corev1.Node) (map[kind]sample, error) {
	machines := &machinev1beta1.MachineList{}
	if err := d.machines.List(ctx, machines, client.InNamespace(contract.MachineAPINamespace),
		client.MatchingLabels(windows())); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	ready := map[string]*corev1.Node{}
	for i := range nodes {
		if is, _ := journey.NodeReady(&nodes[i]); is {
			ready[nodes[i].Name] = &nodes[i]
		}
	}
	slices.SortFunc(machines.Items, func(a, b machinev1beta1.Machine) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	newest := map[kind]sample{}
	for i := range machines.Items {
		m := fromOpenShift(&machines.Items[i])
		ref := machines.Items[i].Status.NodeRef
		if m.Owner == nil || m.Owner.Kind != ownerKind || ref == nil || ready[ref.Name] == nil {
			continue
		}
		size := kind{m.Owner.UID, sizeOf(machines.Items[i].Spec)}
		newest[size] = sample{ready[ref.Name], machines.Items[i].CreationTimestamp.Time}
	}
	return newest, nil
}

// write adds what a set lacks, and corrects what the operator wrote; nil removes it. A repeated call writes
// nothing.
func (d *describer) write(ctx context.Context, set *machinev1beta1.MachineSet, missing map[string]*string) error {
	if len(missing) == 0 || !set.DeletionTimestamp.IsZero() {
		return nil
	}
	// The set may be another one of that name by now, or somebody may have written the same.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": set.UID,
		"resourceVersion": set.ResourceVersion, "annotations": missing}})
	if err != nil {
		return fmt.Errorf("describing the nodes of MachineSet %s: %w", set.Name, err)
	}
	target := &machinev1beta1.MachineSet{}
	target.Namespace, target.Name = set.Namespace, set.Name
	err = d.client.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("describing the nodes of MachineSet %s: %w", set.Name, err)
	}
	logf.FromContext(ctx).Info("described the nodes of a MachineSet for the autoscaler", "machineSet", set.Name,
		"annotations", slices.Sorted(maps.Keys(missing)))
	return nil
}
