package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// nameRetry is how often names are looked up that had no address: DNS tells nobody when that
	// changes.
	nameRetry = 30 * time.Second
	// staleRetry is for a cache that lags behind what the API server says.
	staleRetry = time.Second
	// lostRetry is how often a Machine without the label is read whose host is being cleaned: the
	// cache does not have it, so its end is no event.
	lostRetry = 15 * time.Second
)

// Reconciler keeps the instances of Machines.
type Reconciler struct {
	// client reads instances through the manager's cache and writes; machines reads Machines and
	// sets through their own; live reads past both.
	client   client.Client
	machines client.Reader
	live     client.Reader
	events   events.EventRecorder
	options  Options
	resolver *resolver
	told     *told
	// held and rejected say which problems of a plan have lasted.
	held, rejected *waiting
}

// Reconcile projects all Machines.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	list := &machinev1beta1.MachineList{}
	if err := r.machines.List(ctx, list, client.InNamespace(contract.MachineAPINamespace),
		client.MatchingLabels(windows())); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing Machines: %w", err)
	}
	instances := &v1alpha1.WindowsInstanceList{}
	if err := r.client.List(ctx, instances, client.InNamespace(r.options.Namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing instances: %w", err)
	}
	v := view{instances: instances.Items}
	for i := range list.Items {
		v.machines = append(v.machines, fromOpenShift(&list.Items[i]))
	}
	var err error
	if v.platform, err = r.options.Platform(ctx); err != nil {
		logf.FromContext(ctx).V(1).Info("machines wait for the cluster's platform", "why", err.Error())
	}
	v.resolves = r.resolver.resolve(ctx, v.machines)
	p := decide(v)
	if v.platform != "" {
		r.options.View.refuse(p.rejected)
	}
	again, err := r.carryOut(ctx, p)
	if v.platform != "" { // without it no Machine was read, and what was wrong with them may be so still
		again = policy.Soonest(again, r.say(v.machines, p))
	}
	if err != nil && again > 0 { // other Machines wait for a time: trying less and less often would be too late
		logf.FromContext(ctx).Error(err, "not all instances are as their machines say")
		again, err = policy.Soonest(again, nameRetry), nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// say tells what is wrong with Machines: their events at once, unless they only wait, and the settings when
// it has lasted. again is when more will have, 0 for never.
func (r *Reconciler) say(machines []inventory.Machine, p plan) (again time.Duration) {
	now := r.options.Now()
	overdue, again := r.held.overdue(machines, p.held, now)
	lasting, later := r.rejected.overdue(machines, p.rejected, now)
	r.tellProblems(machines, p.rejected, overdue)
	r.options.Problems.Set(problem.Sum(slices.AppendSeq(slices.Collect(maps.Values(lasting)), maps.Values(overdue))))
	return policy.Soonest(again, later)
}

// carryOut does everything that it can, and joins the errors. Machines whose instances are refused are among the
// rejected afterwards. again is when to look once more, 0 for never.
func (r *Reconciler) carryOut(ctx context.Context, p plan) (again time.Duration, err error) {
	var all []error
	for name, why := range p.waits {
		logf.FromContext(ctx).V(1).Info("machine is no instance yet", "machine", name, "why", why)
	}
	for _, problem := range p.rejected {
		if problem.Reason == contract.ReasonMachineAddressUnusable {
			again = policy.Soonest(again, nameRetry)
		}
	}
	done := func(next time.Duration, err error) {
		again = policy.Soonest(again, next)
		all = append(all, err)
	}
	for _, entry := range p.create {
		problem, err := r.create(ctx, entry)
		if done(0, err); problem != nil {
			p.rejected[entry.Name], again = problem, policy.Soonest(again, nameRetry)
		}
	}
	for _, u := range p.update {
		if u.instance.Spec.Source.UID != u.entry.Machine.UID {
			logf.FromContext(ctx).Info("machine was made anew for its host, instance stays", "instance", u.entry.Name)
		}
		done(r.change(ctx, &u.instance,
			func(i *v1alpha1.WindowsInstance) { i.Spec = projected(i.Spec, u.entry) }))
	}
	for i := range p.pause {
		done(r.change(ctx, &p.pause[i], pause))
	}
	for i := range p.resume {
		done(r.change(ctx, &p.resume[i], resume))
	}
	for i := range p.discard {
		done(r.destroyed(ctx, &p.discard[i]))
	}
	for i := range p.lost {
		done(r.lost(ctx, &p.lost[i]))
	}
	return again, errors.Join(all...)
}

func pause(i *v1alpha1.WindowsInstance) {
	metav1.SetMetaDataAnnotation(&i.ObjectMeta, contract.IgnoredAnnotation, "true")
	i.Spec.Paused = true
}

func resume(i *v1alpha1.WindowsInstance) {
	delete(i.Annotations, contract.IgnoredAnnotation)
	i.Spec.Paused = false
}

// create makes the instance of a Machine: see problem.OfCreate.
func (r *Reconciler) create(ctx context.Context, entry inventory.Entry) (*contract.Problem, error) {
	instance := &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: entry.Name},
		Spec:       projected(v1alpha1.WindowsInstanceSpec{}, entry),
	}
	if err := r.client.Create(ctx, instance); err != nil {
		return problem.OfCreate(entry.Name, err)
	}
	logf.FromContext(ctx).Info("machine found, instance made", "instance", entry.Name, "address", entry.Address)
	return nil, nil
}

// change writes an instance as it was seen. One that somebody else has written since is looked at again:
// what was written may be no event here.
func (r *Reconciler) change(ctx context.Context, instance *v1alpha1.WindowsInstance,
	change func(*v1alpha1.WindowsInstance)) (again time.Duration, err error) {
	wanted := instance.DeepCopy()
	change(wanted)
	err = r.client.Patch(ctx, wanted, client.MergeFromWithOptions(instance, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return staleRetry, nil
	}
	return 0, wrap("changing instance "+instance.Name, client.IgnoreNotFound(err))
}

// discard lets an instance go whose host is destroyed with its Machine. A user's Force
// stands. One that is another by now is looked at again, as by change.
func (r *Reconciler) discard(ctx context.Context, instance *v1alpha1.WindowsInstance) (again time.Duration,
	err error) {
	if instance.Spec.RemovalPolicy != v1alpha1.RemovalForce && instance.Spec.RemovalPolicy != v1alpha1.RemovalDiscard {
		patch := client.MergeFromWithOptions(instance.DeepCopy(), client.MergeFromWithOptimisticLock{})
		instance.Spec.RemovalPolicy = v1alpha1.RemovalDiscard
		err = r.client.Patch(ctx, instance, patch)
		if apierrors.IsConflict(err) {
			return staleRetry, nil
		}
		if err != nil {
			return 0, wrap("giving up the host of instance "+instance.Name, client.IgnoreNotFound(err))
		}
	}
	return 0, r.remove(ctx, instance, "machine leaves, and its instance with it")
}

func (r *Reconciler) remove(ctx context.Context, instance *v1alpha1.WindowsInstance, why string) error {
	if !instance.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := r.client.Delete(ctx, instance, client.Preconditions{UID: &instance.UID}); err != nil {
		return wrap("deleting instance "+instance.Name, client.IgnoreNotFound(err))
	}
	logf.FromContext(ctx).Info(why, "instance", instance.Name)
	return nil
}

// destroyed discards an instance, unless only a cache that lags behind has it that its host is destroyed.
func (r *Reconciler) destroyed(ctx context.Context, instance *v1alpha1.WindowsInstance) (again time.Duration,
	err error) {
	machine, isGone, err := r.machineOf(ctx, instance)
	if err != nil {
		return 0, err
	}
	if isGone || inventory.MachinePhase(ptr.Deref(machine.Status.Phase, "")) == inventory.MachineFailed {
		return r.discard(ctx, instance)
	}
	return staleRetry, nil
}

// lost decides about an instance whose Machine is not in the cache. One that is gone took its host with it;
// one that lost its label is no business of ours any more, and its host is given back clean. again is when
// to look once more; 0 when there is no need.
func (r *Reconciler) lost(ctx context.Context, instance *v1alpha1.WindowsInstance) (again time.Duration, err error) {
	machine, isGone, err := r.machineOf(ctx, instance)
	switch {
	case err != nil:
		return 0, err
	case isGone:
		return r.discard(ctx, instance)
	case machine.Labels[contract.MachineOSLabel] == contract.OSIDWindows:
		return staleRetry, nil
	}
	return lostRetry, r.remove(ctx, instance, "machine has lost the label of Windows, instance leaves")
}

// machineOf asks the API server what became of the Machine of an instance. isGone says that its host is, or
// soon will be.
func (r *Reconciler) machineOf(ctx context.Context, instance *v1alpha1.WindowsInstance) (
	machine *machinev1beta1.Machine, isGone bool, err error) {
	machine = &machinev1beta1.Machine{}
	err = r.live.Get(ctx, client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: instance.Spec.Source.Name},
		machine)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("reading Machine %s: %w", instance.Spec.Source.Name, err)
	}
	created := cmp.Or(machine.CreationTimestamp, instance.CreationTimestamp).Time
	if now := fromOpenShift(machine); err == nil && !now.Deleting {
		return machine, !isHostOf(instance, now), nil
	}
	stays, err := cluster.KindStays(ctx, r.live, contract.MachineCRD, created)
	if err == nil && !stays {
		err = fmt.Errorf("the CRD %s is deleted", contract.MachineCRD)
	}
	if err != nil {
		return nil, false, fmt.Errorf("instance %s stays although its Machine is gone: %w", instance.Name, err)
	}
	return machine, true, nil
}

func wrap(doing string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}
