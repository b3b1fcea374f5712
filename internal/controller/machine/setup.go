package machine

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// apiRetry is how often a cluster without the Machine API is asked whether it has it now: one cheap question.
const apiRetry = time.Minute

// Options of the controller. All are required.
type Options struct {
	// Namespace of the operator, where the instances are.
	Namespace string
	// Platform tells where the cluster runs, in lower case, or an error while nobody knows.
	Platform func(ctx context.Context) (string, error)
	// Changed delivers whenever Platform may answer otherwise than before.
	Changed <-chan event.GenericEvent
}

// Setup adds to a manager what begins the controller as soon as the cluster has the Machine API, at the start or later. Its answer serves in
// either case.
func Setup(mgr ctrl.Manager, options Options) (*Origins, error) {
	if options.Namespace == "" || options.Platform == nil || options.Changed == nil {
		return nil, errors.New("setting up the machine controller: an option is missing")
	}
	origins := &Origins{live: mgr.GetAPIReader()}
	if err := mgr.Add(&starter{mgr: mgr, options: options, retry: apiRetry, origins: origins}); err != nil {
		return nil, fmt.Errorf("setting up the machine controller: %w", err)
	}
	return origins, nil
}

// starter waits for the Machine API. It runs where the controller would.
type starter struct {
	mgr     ctrl.Manager
	options Options
	retry   time.Duration
	origins *Origins
}

var _ manager.Runnable = (*starter)(nil)

// Start returns once the controller runs, or with ctx.
func (s *starter) Start(ctx context.Context) error {
	log := s.mgr.GetLogger().WithName("machine")
	for waits := false; ; waits = true {
		served, err := isServed(s.mgr.GetRESTMapper())
		switch {
		case err != nil:
			log.Info("the cluster does not say whether it has the Machine API", "error", err.Error())
		case served:
			return s.begin()
		case !waits:
			log.Info("the cluster has no Machine API; it is looked for every now and then", "every", s.retry.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.retry):
		}
	}
}

// begin adds the Machines' cache and the controller to the manager, which starts them at once. The cache is one of their own: the manager's
// is made before it is known whether the cluster has such a kind, and would watch it in all namespaces.
func (s *starter) begin() error {
	machines, err := cache.New(s.mgr.GetConfig(), cache.Options{
		HTTPClient: s.mgr.GetHTTPClient(), Scheme: s.mgr.GetScheme(), Mapper: s.mgr.GetRESTMapper(), ByObject: cached(),
	})
	if err != nil {
		return fmt.Errorf("making the cache of Machines: %w", err)
	}
	if err = s.mgr.Add(machines); err != nil {
		return fmt.Errorf("adding the cache of Machines: %w", err)
	}
	r := &Reconciler{
		client: s.mgr.GetClient(), machines: machines, live: s.mgr.GetAPIReader(), events: s.mgr.GetEventRecorder(contract.OperatorServiceAccount),
		options: s.options, resolver: newResolver(), told: &told{},
	}
	err = ctrl.NewControllerManagedBy(s.mgr).Named("machine").
		WatchesRawSource(source.Kind(machines, &machinev1beta1.Machine{}, handler.TypedEnqueueRequestsFromMapFunc(all[*machinev1beta1.Machine]), machineNews())).
		Watches(&v1alpha1.WindowsInstance{}, handler.EnqueueRequestsFromMapFunc(all[client.Object]), builder.WithPredicates(comesOrGoes())).
		WatchesRawSource(source.Channel(s.options.Changed, handler.TypedEnqueueRequestsFromMapFunc(all[client.Object]))).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the machine controller: %w", err)
	}
	var reader client.Reader = machines
	s.origins.cached.Store(&reader)
	return nil
}

// all is the only request that there is: Machines are looked at together, as two of them may have one address.
func all[T any](context.Context, T) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: contract.MachineAPINamespace, Name: "all"}}}
}

// machineNews lets through what we look at in a Machine; clouds report much more.
func machineNews() predicate.TypedPredicate[*machinev1beta1.Machine] {
	return predicate.TypedFuncs[*machinev1beta1.Machine]{UpdateFunc: func(e event.TypedUpdateEvent[*machinev1beta1.Machine]) bool {
		return !reflect.DeepEqual(fromOpenShift(e.ObjectOld), fromOpenShift(e.ObjectNew))
	}}
}

// comesOrGoes lets through what changes the projection: instances made, deleted, or with another spec.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration()
	}}
}
