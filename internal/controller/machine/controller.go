package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// nameRetry is how often names without an address in DNS are looked up again, because DNS sends no events.
	nameRetry = 30 * time.Second
	// staleRetry is the pause before a retry if the cache lags behind the API server. It also applies while the
	// operator cleans a host whose Machine isn't in the cache, because the deletion of such a Machine sends no event.
	staleRetry = 5 * time.Second
)

// errChanged means that an object was changed after the operator decided about it.
var errChanged = errors.New("the object was modified concurrently")

// Reconciler creates and removes the instances of Machines, and replaces Machines whose hosts refuse the private key.
type Reconciler struct {
	// client reads instances through the manager's cache, and writes. machines reads Machines through a separate cache.
	// `live` reads from the API server.
	client   client.Client
	machines client.Reader
	live     client.Reader
	events   events.EventRecorder
	options  Options
	// hasAddress reports whether the name of a host has an address in DNS.
	hasAddress func(ctx context.Context, name string) bool
	// missing contains Machines that don't become nodes. restricted contains Machines that can't be replaced now.
	missing, restricted conditions
}

// Reconcile compares all Machines with all instances.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	v, err := r.read(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	again, err := r.project(ctx, v)
	after, failed := r.replaceAll(ctx, v)
	if err = errors.Join(err, failed); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: policy.Soonest(again, after)}, nil
}

func (r *Reconciler) read(ctx context.Context) (v view, err error) {
	list, instances := &machinev1beta1.MachineList{}, &v1alpha1.WindowsInstanceList{}
	if err := r.machines.List(ctx, list, client.InNamespace(contract.MachineAPINamespace),
		client.MatchingLabels(windows())); err != nil {
		return v, fmt.Errorf("listing Machines: %w", err)
	}
	if err := r.client.List(ctx, instances, client.InNamespace(r.options.Namespace)); err != nil {
		return v, fmt.Errorf("listing instances: %w", err)
	}
	v.instances = instances.Items
	for i := range list.Items {
		v.machines = append(v.machines, fromOpenShift(&list.Items[i]))
	}
	return v, nil
}

// project makes the instances match the Machines. `again` is the time until the next reconcile, or 0.
func (r *Reconciler) project(ctx context.Context, v view) (again time.Duration, err error) {
	if v.platform, err = r.options.Platform(ctx); err != nil {
		logf.FromContext(ctx).V(1).Info("machines wait for the cluster's platform", "why", err.Error())
	}
	v.resolves = r.resolve(ctx, v.machines)
	p := decide(v)
	again, err = r.carryOut(ctx, &p)
	if v.platform != "" { // without the platform, Machines can't be read: keep the conditions
		r.options.View.refuse(p.findings)
		lasting, next := r.missing.update(p.findings, r.options.Now(), r.reporter(eventSetupFailure, "Read"))
		r.options.Problems.Set("machine", problem.Sum(lasting))
		again = policy.Soonest(again, next)
	}
	return again, err
}

// carryOut carries out the parts of the plan independently, and joins their errors. If the API server refuses an
// instance, carryOut adds a finding to the plan.
func (r *Reconciler) carryOut(ctx context.Context, p *plan) (again time.Duration, err error) {
	var errs []error
	done := func(err error) {
		if errors.Is(err, errChanged) {
			again = staleRetry
		} else {
			errs = append(errs, err)
		}
	}
	for name, why := range p.waits {
		logf.FromContext(ctx).V(1).Info("machine is no instance yet", "machine", name, "why", why)
	}
	for _, c := range p.create {
		problem, err := r.create(ctx, c)
		if done(err); problem != nil {
			p.findings = append(p.findings, finding{machine: c.machine, problem: problem, lasts: leavingTime})
		}
	}
	for _, c := range p.change {
		done(r.change(ctx, c.instance, c.wanted))
	}
	for _, instance := range p.leave {
		done(r.leave(ctx, instance))
	}
	for _, f := range p.findings {
		switch f.problem.Reason {
		case contract.ReasonMachineAddressUnusable, contract.ReasonInstanceRefused:
			again = policy.Soonest(again, nameRetry)
		}
	}
	return again, errors.Join(errs...)
}

// create creates the instance of a Machine. For its results, see problem.OfCreate.
func (r *Reconciler) create(ctx context.Context, c newcomer) (*contract.Problem, error) {
	byItself, err := r.options.ByItself(ctx)
	if err != nil {
		return nil, err
	}
	if byItself {
		c.spec.ByItself = &v1alpha1.ByItself{}
	}
	instance := &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.options.Namespace, Name: c.machine.Name,
			Finalizers: []string{contract.InstanceFinalizer}}, Spec: c.spec,
	}
	if err = r.client.Create(ctx, instance); err != nil {
		return problem.OfCreate(c.machine.Name, err)
	}
	logf.FromContext(ctx).Info("machine found, instance made", "instance", c.machine.Name, "address", c.spec.Address)
	return nil, nil
}

// change writes an instance. If another client has written the instance since it was read, change returns errChanged.
// Then the caller must retry, because this controller may get no event about the other write.
func (r *Reconciler) change(ctx context.Context, instance, wanted *v1alpha1.WindowsInstance) error {
	err := r.client.Patch(ctx, wanted, client.MergeFromWithOptions(instance, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return errChanged
	}
	return wrap("changing instance "+instance.Name, client.IgnoreNotFound(err))
}

// leave removes an instance if the API server shows that its host is destroyed, or that its Machine lost the Windows
// label. In the second case, the host is cleaned.
func (r *Reconciler) leave(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	machine, isGone, err := r.machineOf(ctx, instance)
	switch {
	case err != nil:
		return err
	case isGone:
		return r.discard(ctx, instance)
	case machine.Labels[contract.MachineOSLabel] != contract.OSIDWindows:
		err = r.deleteInstance(ctx, instance, "machine has lost the label of Windows, instance leaves")
	}
	return cmp.Or(err, errChanged) // the cache lags, or the host is being cleaned and its Machine isn't cached
}

// discard removes an instance whose host is destroyed with its Machine. Its policy becomes Discard, unless it is Force.
func (r *Reconciler) discard(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	if instance.Spec.RemovalPolicy != v1alpha1.RemovalForce && instance.Spec.RemovalPolicy != v1alpha1.RemovalDiscard {
		wanted := instance.DeepCopy()
		wanted.Spec.RemovalPolicy = v1alpha1.RemovalDiscard
		if err := r.change(ctx, instance, wanted); err != nil {
			return err
		}
	}
	return r.deleteInstance(ctx, instance, "machine leaves, and its instance with it")
}

func (r *Reconciler) deleteInstance(ctx context.Context, instance *v1alpha1.WindowsInstance, why string) error {
	if !instance.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := r.client.Delete(ctx, instance, client.Preconditions{UID: &instance.UID}); err != nil {
		return wrap("deleting instance "+instance.Name, client.IgnoreNotFound(err))
	}
	logf.FromContext(ctx).Info(why, "instance", instance.Name)
	return nil
}

// machineOf reads an instance's Machine from the API server. isGone: its host is destroyed, or soon will be.
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
