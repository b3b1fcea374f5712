package publish

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/payload"
)

// DefaultGrace is how long a revision stays after the last node left it. It covers a host that joins with that
// revision and has no Node yet.
const DefaultGrace = time.Hour

// reconcileTimeout ends a reconciliation that waits for an API server or a cache that does not answer.
const reconcileTimeout = time.Minute

// Options of the controllers.
type Options struct {
	// Namespace of the operator, where manifests are published.
	Namespace string
	// Facts returns the facts of the cluster.
	Facts cluster.Source
	// Payload lists the programs that this operator ships.
	Payload payload.Manifest
	// PayloadSource is the address from which daemons fetch the payload. It is zero if there is none.
	PayloadSource PayloadSource
	// Logging configures the rotation of services' logs.
	Logging blueprint.Logging
	// OperatorVersion is the first part of every revision.
	OperatorVersion string
	// Grace is how long a revision stays after the last node left it.
	Grace time.Duration
	// Now is the clock.
	Now func() time.Time
	// Registry for metrics.
	Registry prometheus.Registerer
}

// Setup adds the controller to a manager, and returns the Source that the controller fills.
func Setup(mgr ctrl.Manager, options Options) (*Source, error) {
	meters, err := newMeters(options.Registry)
	if err != nil {
		return nil, err
	}
	p := &publisher{Options: options, client: mgr.GetClient(), source: &Source{}, meters: meters,
		tell: recorder{events: mgr.GetEventRecorder(contract.OperatorServiceAccount)}}
	if err = p.setup(mgr); err != nil {
		return nil, fmt.Errorf("setting up the publish controller: %w", err)
	}
	return p.source, nil
}

func (p *publisher) setup(mgr ctrl.Manager) error {
	one := watch.One("", contract.MachineConfigObject) // one reconcile handles everything
	enqueue := handler.EnqueueRequestsFromMapFunc(one)
	first := batch.NewSignal()
	first.Send(&v1alpha1.WindowsMachineConfig{})
	b := ctrl.NewControllerManagedBy(mgr).Named("publish").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcileTimeout}).
		Watches(&v1alpha1.WindowsMachineConfig{}, enqueue,
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, enqueue, builder.WithPredicates(predicate.Or(published(p.Namespace),
			watch.Named(p.Namespace, contract.PayloadSourceConfigMap)))).
		Watches(&corev1.Secret{}, enqueue, builder.WithPredicates(published(p.Namespace))).
		Watches(&rbacv1.Role{}, enqueue, builder.WithPredicates(watch.Named(p.Namespace, contract.ServicesReaderRole))).
		// At the start, one pass reports what is missing in an empty cluster.
		WatchesRawSource(source.Channel(first, enqueue))
	for _, input := range p.Facts.Inputs() {
		served, err := isServed(mgr.GetRESTMapper(), mgr.GetScheme(), input.Object)
		if err != nil {
			return err
		}
		if !served {
			// A watch on a missing kind would end the operator. The facts name the missing kind as a problem, and
			// are read again periodically.
			mgr.GetLogger().Info("cluster lacks a kind of object that facts are read from", "type",
				fmt.Sprintf("%T", input.Object))
			continue
		}
		b = b.Watches(input.Object, enqueue, builder.WithPredicates(contentChanged(input)))
	}
	return b.Complete(p)
}

// contentChanged passes events of an input if an object appears or disappears, or if the content that the operator
// reads changes. It drops other status updates.
func contentChanged(input cluster.Input) predicate.Predicate {
	matters := func(o client.Object) bool { return input.Content(o) != "" }
	return predicate.And(watch.Named(input.Object.GetNamespace(), input.Object.GetName()), predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return matters(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return matters(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return input.Content(e.ObjectOld) != input.Content(e.ObjectNew) },
	})
}

// published passes ConfigMaps and Secrets whose names belong to a revision.
func published(namespace string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == namespace && strings.HasPrefix(o.GetName(), contract.ServicesConfigMapPrefix)
	})
}
