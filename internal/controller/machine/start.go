package machine

import (
	"context"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
	"github.com/windows-nodes/wmco/internal/controller/watch"
)

// apiRetry is how often a cluster without the Machine API, or without rights there, is asked whether it has
// them now: a few cheap questions.
const apiRetry = time.Minute

// starter waits for the Machine API, and for the rights to read it. It runs where the controllers would.
type starter struct {
	mgr     ctrl.Manager
	options Options
	retry   time.Duration
}

var _ manager.Runnable = (*starter)(nil)

// Start returns once the controllers run, or with ctx.
func (s *starter) Start(ctx context.Context) error {
	log, said := s.mgr.GetLogger().WithName("machine"), ""
	for {
		why, err := s.missing(ctx)
		switch {
		case err != nil:
			log.Info("the cluster does not say whether it has the Machine API", "error", err.Error())
		case why == "":
			return s.begin()
		case why != said:
			said = why
			s.options.View.absent.Store(true)
			log.Info("no Machines are followed; it is tried again every now and then", "why", why, "every",
				s.retry.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.retry):
		}
	}
}

// missing says in words why Machines can't be followed yet; empty when they can. Controllers whose caches
// never get a first list end the whole operator.
func (s *starter) missing(ctx context.Context) (string, error) {
	served, err := isServed(s.mgr.GetRESTMapper())
	if err != nil {
		return "", err
	}
	if !served {
		return "the cluster has no Machine API", nil
	}
	for _, list := range []client.ObjectList{&machinev1beta1.MachineList{}, &machinev1beta1.MachineSetList{}} {
		err = s.mgr.GetAPIReader().List(ctx, list, client.InNamespace(contract.MachineAPINamespace), client.Limit(1))
		if apierrors.IsForbidden(err) {
			return "the operator may not read Machines and MachineSets: apply config/machine-api", nil
		}
		if err != nil {
			return "", fmt.Errorf("reading Machines and MachineSets: %w", err)
		}
	}
	return "", nil
}

// begin adds the Machines' cache and the controllers to the manager, which starts them at once. The
// cache is one of their own: the manager's is made before it is known whether the cluster has such
// a kind, and would watch it in all namespaces.
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
	var reader client.Reader = machines
	s.options.View.cached.Store(&reader)
	if err = s.project(machines); err != nil {
		return fmt.Errorf("setting up the machine controller: %w", err)
	}
	if err = s.replace(machines); err != nil {
		return fmt.Errorf("setting up the replace controller: %w", err)
	}
	return nil
}

// project adds the controller that makes instances of Machines.
func (s *starter) project(machines cache.Cache) error {
	r := &Reconciler{
		client: s.mgr.GetClient(), machines: machines, live: s.mgr.GetAPIReader(),
		events:  s.mgr.GetEventRecorder(contract.OperatorServiceAccount),
		options: s.options, resolver: newResolver(), told: &told{}, held: newHeld(), rejected: newRejected(),
	}
	return ctrl.NewControllerManagedBy(s.mgr).Named("machine").
		WatchesRawSource(source.Kind(machines, &machinev1beta1.Machine{},
			handler.TypedEnqueueRequestsFromMapFunc(all[*machinev1beta1.Machine]), machineNews())).
		Watches(&v1alpha1.WindowsInstance{}, handler.EnqueueRequestsFromMapFunc(all[client.Object]),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(s.options.Changed,
			handler.TypedEnqueueRequestsFromMapFunc(all[client.Object]))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(r)
}

// replace adds the controller that deletes Machines whose hosts refuse the key. It has one
// worker: decisions are taken one after the other.
func (s *starter) replace(machines cache.Cache) error {
	r := &replacer{
		client: s.mgr.GetClient(), machines: machines, live: s.mgr.GetAPIReader(), rollout: s.options.Rollout,
		events: s.mgr.GetEventRecorder(contract.OperatorServiceAccount), options: s.options, told: &told{},
		attempts: &attempts{client: s.mgr.GetClient(), live: s.mgr.GetAPIReader(), namespace: s.options.Namespace},
	}
	look, news := handler.EnqueueRequestsFromMapFunc(all[client.Object]), batch.News(all[client.Object])
	return ctrl.NewControllerManagedBy(s.mgr).Named("replace").
		WatchesRawSource(source.Kind(machines, &machinev1beta1.Machine{},
			handler.TypedEnqueueRequestsFromMapFunc(all[*machinev1beta1.Machine]), machineNews())).
		WatchesRawSource(source.Kind(machines, &machinev1beta1.MachineSet{},
			handler.TypedEnqueueRequestsFromMapFunc(all[*machinev1beta1.MachineSet]), setNews())).
		Watches(&v1alpha1.WindowsInstance{}, news, builder.WithPredicates(trialNews())).
		Watches(&corev1.Node{}, news, builder.WithPredicates(memberNews())).
		Watches(&corev1.Secret{}, look,
			builder.WithPredicates(watch.Named(s.options.Namespace, contract.PrivateKeySecret))).
		Watches(&v1alpha1.WindowsMachineConfig{}, look, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(r)
}
