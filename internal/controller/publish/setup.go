package publish

import (
	"errors"
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
	"sigs.k8s.io/controller-runtime/pkg/metrics"
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

// DefaultGrace is how long a revision stays after the last node left it. It covers a host that is on
// joining with that revision and has no Node yet.
const DefaultGrace = time.Hour

// reconcileTimeout ends a reconciliation that waits for an API server or a cache that does not answer.
const reconcileTimeout = time.Minute

// Options are what the controllers work with.
type Options struct {
	// Namespace of the operator, where manifests are published.
	Namespace string
	// Facts gives the facts of the cluster.
	Facts cluster.Source
	// Payload is what this operator ships.
	Payload payload.Manifest
	// Source is where daemons fetch it while their nodes serve; zero for nowhere.
	PayloadSource PayloadSource
	// Logging is how services' logs are rotated.
	Logging blueprint.Logging
	// OperatorVersion is the first part of every revision.
	OperatorVersion string
	// Grace is how long a revision stays after the last node left it; DefaultGrace when 0.
	Grace time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
	// Registry for metrics; the manager's when nil.
	Registry prometheus.Registerer
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" || o.Facts == nil {
		return o, errors.New("setting up the publish controller: an option is missing")
	}
	if o.Grace == 0 {
		o.Grace = DefaultGrace
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Registry == nil {
		o.Registry = metrics.Registry
	}
	return o, nil
}

// Setup adds both controllers to a manager and gives the Source that they fill.
func Setup(mgr ctrl.Manager, options Options) (*Source, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	meters, err := newMeters(options.Registry)
	if err != nil {
		return nil, err
	}
	result := &Source{}
	recorder := recorder{events: mgr.GetEventRecorder(contract.OperatorServiceAccount)}
	p := &publisher{Options: options, client: mgr.GetClient(), source: result, tell: recorder, meters: meters}
	if err = p.setup(mgr); err != nil {
		return nil, fmt.Errorf("setting up the publish controller: %w", err)
	}
	r := &retirer{
		client: mgr.GetClient(), source: result, tell: recorder, meters: meters, namespace: options.Namespace,
		grace: options.Grace, now: options.Now,
	}
	if err = r.setup(mgr); err != nil {
		return nil, fmt.Errorf("setting up the retire controller: %w", err)
	}
	return result, nil
}

// one is the only request that there is: all of the state is one thing.
func one() handler.MapFunc { return watch.One("", contract.MachineConfigObject) }

// settings of both controllers: one worker, because all requests are the same.
func settings() controller.Options {
	return controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcileTimeout}
}

func (p *publisher) setup(mgr ctrl.Manager) error {
	enqueue := handler.EnqueueRequestsFromMapFunc(one())
	first := batch.NewSignal()
	first.Send(&v1alpha1.WindowsMachineConfig{})
	b := ctrl.NewControllerManagedBy(mgr).Named("publish").WithOptions(settings()).
		Watches(&v1alpha1.WindowsMachineConfig{}, enqueue,
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.ConfigMap{}, enqueue, builder.WithPredicates(publishedOrSource(p.Namespace))).
		Watches(&corev1.Secret{}, enqueue, builder.WithPredicates(published(p.Namespace))).
		Watches(&rbacv1.Role{}, enqueue, builder.WithPredicates(watch.Named(p.Namespace, contract.ServicesReaderRole))).
		// At the start, one pass reports what is missing in an empty cluster.
		WatchesRawSource(source.Channel(first, handler.TypedEnqueueRequestsFromMapFunc(one())))
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

func (r *retirer) setup(mgr ctrl.Manager) error {
	enqueue, news := handler.EnqueueRequestsFromMapFunc(one()), batch.News(one())
	return ctrl.NewControllerManagedBy(mgr).Named("retire").WithOptions(settings()).
		Watches(&corev1.ConfigMap{}, enqueue, builder.WithPredicates(published(r.namespace))).
		Watches(&corev1.Secret{}, enqueue, builder.WithPredicates(published(r.namespace))).
		Watches(&corev1.Node{}, news, builder.WithPredicates(revisionsChanged())).
		Watches(&v1alpha1.WindowsInstance{}, news, builder.WithPredicates(instanceMoved())).
		WatchesRawSource(source.Channel(r.source.Changed(), handler.TypedEnqueueRequestsFromMapFunc(one()))).
		Complete(r)
}

// contentChanged passes events of an input if it appears, disappears, or if the content that the operator reads
// changes. It drops other status updates.
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

// publishedOrSource also passes the ConfigMap that contains the addresses of the payload.
func publishedOrSource(namespace string) predicate.Predicate {
	return predicate.Or(published(namespace), watch.Named(namespace, contract.PayloadSourceConfigMap))
}

// instanceMoved passes events of an instance if it is deleted or needs other revisions than before.
func instanceMoved() predicate.Predicate {
	moved := watch.Changed(func(i *v1alpha1.WindowsInstance) []string { return revisionsOf(i.Status) })
	moved.CreateFunc = func(event.CreateEvent) bool { return false }
	return moved
}

// revisionsChanged passes events of a Node if its revisions change, or if it appears or disappears.
func revisionsChanged() predicate.Predicate {
	return watch.Changed(func(o client.Object) (revisions []string) {
		for _, key := range revisionAnnotations() {
			revisions = append(revisions, o.GetAnnotations()[key])
		}
		return revisions
	})
}

func revisionAnnotations() []string {
	return []string{contract.RevisionAnnotation, contract.DesiredRevisionAnnotation, contract.StageAnnotation}
}

// revisionsOf returns the revisions that an instance needs: its present revision, its desired revision, and the
// revision that it rolls back to if the desired one fails.
func revisionsOf(status v1alpha1.WindowsInstanceStatus) []string {
	versions := []string{status.Revision, status.DesiredRevision, status.HeldRevision, "", ""}
	if update := status.Upgrade(); update != nil {
		versions[3], versions[4] = update.Revision, update.From
	}
	return versions
}
