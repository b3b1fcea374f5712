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

// DefaultGrace is how long a revision is kept after the last node stopped using it. During this time, a host without a
// Node may still be joining with the revision.
const DefaultGrace = time.Hour

// reconcileTimeout ends a reconcile if the API server or the cache does not answer.
const reconcileTimeout = time.Minute

// Options configures the controller.
type Options struct {
	// Namespace is the operator's namespace, where revisions are published.
	Namespace string
	Facts     cluster.Source
	// Payload lists the programs that this operator ships.
	Payload payload.Manifest
	// PayloadSource is where daemons download the payload. It is zero if they can't download it.
	PayloadSource PayloadSource
	// Logging configures the rotation of services' logs.
	Logging blueprint.Logging
	// OperatorVersion is the operator's version. The name of every revision begins with it.
	OperatorVersion string
	Grace           time.Duration
	Now             func() time.Time
	Registry        prometheus.Registerer
}

// Setup adds the controller to a manager. It returns the Source that the controller updates.
func Setup(mgr ctrl.Manager, options Options) (*Source, error) {
	p := &publisher{Options: options, client: mgr.GetClient(), source: &Source{}, meters: newMeters(options.Registry),
		tell: recorder{events: mgr.GetEventRecorder(contract.OperatorServiceAccount)}}
	if err := p.setup(mgr); err != nil {
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
		// At the start, reconcile once even if the cluster is empty, to report what is missing.
		WatchesRawSource(source.Channel(first, enqueue))
	for _, input := range p.Facts.Inputs() {
		served, err := isServed(mgr.GetRESTMapper(), mgr.GetScheme(), input.Object)
		if err != nil {
			return err
		}
		if !served {
			// Watching a missing kind would end the operator. The facts report the missing kind as a problem, and are
			// read again periodically.
			mgr.GetLogger().Info("cluster lacks a kind of object that facts are read from", "type",
				fmt.Sprintf("%T", input.Object))
			continue
		}
		b = b.Watches(input.Object, enqueue, builder.WithPredicates(contentChanged(input)))
	}
	return b.Complete(p)
}

// contentChanged selects the creation and deletion of an input, and changes of the content that the operator reads. It
// ignores other updates, such as status updates.
func contentChanged(input cluster.Input) predicate.Predicate {
	matters := func(o client.Object) bool { return input.Content(o) != "" }
	return predicate.And(watch.Named(input.Object.GetNamespace(), input.Object.GetName()), predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return matters(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return matters(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return input.Content(e.ObjectOld) != input.Content(e.ObjectNew) },
	})
}

func published(namespace string) predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == namespace && strings.HasPrefix(o.GetName(), contract.ServicesConfigMapPrefix)
	})
}
