package machine

import (
	"context"
	"fmt"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// apiRetry is how often the operator checks whether the cluster has the Machine API, and whether it may be read.
	apiRetry = time.Minute
	// errorRetry is the longest pause after an error. The controller reconciles all Machines together, so a longer
	// pause would delay other Machines as well. By default, the pause would grow to a quarter of an hour.
	errorRetry = 30 * time.Second
)

// starter waits until the cluster has the Machine API and the operator has the rights to read it.
type starter struct {
	mgr     ctrl.Manager
	options Options
	retry   time.Duration
}

var _ manager.Runnable = (*starter)(nil)

func (s *starter) Start(ctx context.Context) error {
	log, logged := s.mgr.GetLogger().WithName("machine"), ""
	for {
		why, err := s.missing(ctx)
		switch {
		case err != nil:
			log.Info("looking for the Machine API failed; retrying", "error", err.Error())
		case why == "":
			return s.begin()
		case why != logged:
			logged = why
			s.options.View.absent.Store(true)
			log.Info("Machines can't be watched; retrying", "why", why, "every", s.retry.String())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(s.retry):
		}
	}
}

// The method `missing` returns why the operator can't watch Machines yet, or "". While there is a reason, the
// controller must not start: if its cache never gets a first list, the whole operator exits.
func (s *starter) missing(ctx context.Context) (string, error) {
	for _, list := range []client.ObjectList{&machinev1beta1.MachineList{}, &machinev1beta1.MachineSetList{}} {
		err := s.mgr.GetAPIReader().List(ctx, list, client.InNamespace(contract.MachineAPINamespace), client.Limit(1))
		switch {
		case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
			return "the cluster has no Machine API", nil
		case apierrors.IsForbidden(err):
			return "the operator may not read Machines and MachineSets: apply config/machine-api", nil
		case err != nil:
			return "", fmt.Errorf("reading Machines and MachineSets: %w", err)
		}
	}
	return "", nil
}

// begin adds a cache of Machines and the controller to the manager, which starts them at once. The manager's own cache
// would watch all namespaces, and is created before the operator knows whether the cluster has Machines.
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
	// All Machines share one request, because they depend on each other: if two have the same address, one must wait.
	all := watch.One(contract.MachineAPINamespace, "all")
	look, news := handler.EnqueueRequestsFromMapFunc(all), batch.News(all)
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, errorRetry)
	err = ctrl.NewControllerManagedBy(s.mgr).Named("machine").
		WatchesRawSource(source.Kind[client.Object](machines, &machinev1beta1.Machine{}, news,
			watch.Changed(fromOpenShift))).
		WatchesRawSource(source.Kind[client.Object](machines, &machinev1beta1.MachineSet{}, news,
			watch.Changed(func(set *machinev1beta1.MachineSet) policy.Set { return setOf(set, nil) }))).
		Watches(&v1alpha1.WindowsInstance{}, news, builder.WithPredicates(watch.Changed(instanceNews))).
		Watches(&corev1.Node{}, news, builder.WithPredicates(watch.Changed(nodeNews))).
		Watches(&corev1.Secret{}, look,
			builder.WithPredicates(watch.Named(s.options.Namespace, contract.PrivateKeySecret))).
		Watches(&v1alpha1.WindowsMachineConfig{}, look, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(source.Channel(s.options.Changed, look)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: retries}).
		Complete(&Reconciler{
			client: s.mgr.GetClient(), machines: machines, live: s.mgr.GetAPIReader(),
			events:  s.mgr.GetEventRecorder(contract.OperatorServiceAccount),
			options: s.options, hasAddress: hasAddress,
		})
	if err != nil {
		return fmt.Errorf("setting up the machine controller: %w", err)
	}
	return nil
}

// instanceNews and nodeNews return what triggers this controller.
func instanceNews(i *v1alpha1.WindowsInstance) []any {
	return []any{i.Generation, i.DeletionTimestamp, i.Status.PublicKeyHash, i.Status.KeyRefusal, i.Status.Slot,
		i.Status.NodeName}
}

func nodeNews(n *corev1.Node) policy.Fleet { return policy.NewFleet([]corev1.Node{*n}, nil, nil, nil) }
