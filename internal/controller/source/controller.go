package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/inventory"
)

const (
	controllerName = "source"
	// absenceGrace is how long the ConfigMap may be absent before its hosts are removed, because `kubectl replace
	// --force` deletes and creates the ConfigMap within seconds.
	absenceGrace = time.Minute
	// staleRetry is the pause before a retry if the cache lags behind the API server.
	staleRetry = time.Second
	// refusedRetry is how often the operator tries again to create an instance that the API server refuses. No event
	// reports that the cause, such as a quota, has changed.
	refusedRetry = 30 * time.Second
)

// Reconciler creates, updates and deletes the instances of the hosts in the ConfigMap windows-instances.
type Reconciler struct {
	// client reads through the manager's cache and writes to the API server. `live` reads from the API server.
	client    client.Client
	live      client.Reader
	events    events.EventRecorder
	namespace string
	// `reported` contains problems that have an event. `problems` collects why valid entries have no instance.
	reported, problems *problem.State
	// absentSince is when the ConfigMap became absent, or nil. If the operator restarts, absenceGrace starts again.
	absentSince atomic.Pointer[time.Time]
	now         func() time.Time
}

// Setup adds the controller to a manager. namespace is the operator's namespace. `problems` collects why valid entries
// have no instance.
func Setup(mgr ctrl.Manager, namespace string, problems *problem.State) error {
	r := &Reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(),
		events: mgr.GetEventRecorder(contract.OperatorServiceAccount), namespace: namespace,
		reported: problem.NewState(), problems: problems, now: time.Now}
	one := watch.One(namespace, contract.InstancesConfigMap)
	err := ctrl.NewControllerManagedBy(mgr).Named(controllerName).
		For(&corev1.ConfigMap{}, builder.WithPredicates(watch.Named(namespace, contract.InstancesConfigMap))).
		Watches(&v1alpha1.WindowsInstance{}, handler.EnqueueRequestsFromMapFunc(one),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})). // created, deleted, or spec changed
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the source controller: %w", err)
	}
	return nil
}

// Reconcile applies the whole list of hosts to the instances. If the ConfigMap is absent for longer than absenceGrace,
// its instances are removed. If the ConfigMap is empty, they are removed at once. While a finalizer delays the deletion
// of the ConfigMap, its content still applies, but no new instances are created.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	list := &corev1.ConfigMap{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: contract.InstancesConfigMap}, list)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading %s: %w", contract.InstancesConfigMap, err)
	}
	instances := &v1alpha1.WindowsInstanceList{}
	if err = r.client.List(ctx, instances, client.InNamespace(r.namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing instances: %w", err)
	}
	if list.UID != "" {
		r.absentSince.Store(nil)
	} else if left := r.grace(ctx, instances.Items); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	entries, rejected := inventory.Parse(list)
	p := decide(entries, rejected, instances.Items)
	if !list.DeletionTimestamp.IsZero() {
		p.create = nil // a new host would be removed soon, together with the list
	}
	refused, again, err := r.carryOut(ctx, list, p)
	r.tellRejected(list, slices.Concat(p.rejected, refused))
	var beyond []*contract.Problem // without invalid entries, which the settings' controller reports
	for _, one := range slices.Concat(p.rejected[len(rejected):], refused) {
		beyond = append(beyond, one.Problem)
	}
	r.problems.Set(controllerName, problem.Sum(beyond))
	if err != nil && len(refused) > 0 { // don't use the queue's backoff, which grows too long
		logf.FromContext(ctx).Error(err, "some instances differ from the list")
		err = nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// carryOut carries out the parts of the plan independently, and joins their errors. `refused` contains the entries
// whose instances the API server refused. `again` is the time until the next reconcile, or 0.
func (r *Reconciler) carryOut(ctx context.Context, list *corev1.ConfigMap, p plan) (refused []inventory.Rejected,
	again time.Duration, err error) {
	var all []error
	for _, entry := range p.create {
		problem, err := r.create(ctx, entry)
		if all = append(all, err); problem != nil {
			refused = append(refused, inventory.Rejected{Key: entry.Address, Name: entry.Name, Problem: problem})
			again = refusedRetry
		}
	}
	for _, u := range p.update {
		all = append(all, r.update(ctx, u))
	}
	if len(p.remove) > 0 {
		if isNewest, err := r.isNewest(ctx, list); !isNewest {
			all, p.remove, again = append(all, err), nil, staleRetry
		}
	}
	for i := range p.remove {
		instance := &p.remove[i]
		if err := r.client.Delete(ctx, instance,
			client.Preconditions{UID: &instance.UID}); client.IgnoreNotFound(err) != nil {
			all = append(all, fmt.Errorf("deleting instance %s: %w", instance.Name, err))
			continue
		}
		logf.FromContext(ctx).Info("entry removed, instance leaves", "instance", instance.Name)
	}
	return refused, again, errors.Join(all...)
}

// isNewest reports whether the list from the cache is the same as in the API server. If an older list were used, for
// example after the operator was suspended, the operator would remove a host that was just added to the list.
func (r *Reconciler) isNewest(ctx context.Context, list *corev1.ConfigMap) (bool, error) {
	now := &corev1.ConfigMap{}
	err := r.live.Get(ctx, types.NamespacedName{Namespace: r.namespace, Name: contract.InstancesConfigMap}, now)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading %s before removing hosts: %w", contract.InstancesConfigMap, err)
	}
	return now.ResourceVersion == list.ResourceVersion, nil
}

// create creates the instance of an entry. For its results, see problem.OfCreate.
func (r *Reconciler) create(ctx context.Context, entry inventory.Entry) (*contract.Problem, error) {
	instance := &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: entry.Name,
			Finalizers: []string{contract.InstanceFinalizer}},
		Spec: v1alpha1.WindowsInstanceSpec{
			Address: entry.Address, Port: entry.Port, Username: entry.User, HostKey: entry.HostKey,
			Source: &v1alpha1.Source{Kind: v1alpha1.SourceConfigMap, Name: entry.Address},
		},
	}
	if err := r.client.Create(ctx, instance); err != nil {
		return problem.OfCreate(entry.Name, err)
	}
	logf.FromContext(ctx).Info("entry found, instance made", "instance", entry.Name)
	return nil, nil
}

func (r *Reconciler) update(ctx context.Context, u update) error {
	wanted := u.instance.DeepCopy()
	wanted.Spec.Username, wanted.Spec.Port = u.entry.User, u.entry.Port
	if u.entry.HostKey != "" {
		wanted.Spec.HostKey = u.entry.HostKey
	}
	if err := r.client.Patch(ctx, wanted, client.MergeFrom(&u.instance)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("changing instance %s: %w", u.instance.Name, err)
	}
	return nil
}
