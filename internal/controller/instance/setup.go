package instance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"golang.org/x/sync/semaphore"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// workers is how many instances are reconciled concurrently. Workers mostly wait for the network. Slots limit joins.
const workers = 256

// wakes is how many waiting hosts can be woken at the same time. If there are more, slotRetry wakes the others.
const wakes = 8192

// Setup adds the controller to a manager. It sets Live, Slots, Claims, Bounds and Observed in options. `slots` decides
// which hosts may be disrupted. The channel `changed` must receive an event when the result of options.Desired changes.
// The channel `misplaced` must receive a Node when the result of options.Misplaced changes for this Node.
func Setup(mgr ctrl.Manager, options journey.Options, slots *rollout.Rollout, changed,
	misplaced <-chan event.GenericEvent) error {
	meters, err := newMeters(metrics.Registry)
	if err != nil {
		return err
	}
	r := &Reconciler{
		client: mgr.GetClient(), recorder: recorder{mgr.GetClient(),
			mgr.GetEventRecorder(contract.OperatorServiceAccount)}, meters: meters,
		now: options.Now, jitter: rand.Float64, memories: map[types.NamespacedName]*memory{}, rollout: slots,
		notes: semaphore.NewWeighted(noters), woken: make(chan event.GenericEvent, wakes),
	}
	r.trials = journey.NewSlots(trials, r.wake)
	options.Slots = journey.NewSlots(defaultJoins, r.wake)
	options.Claims = journey.NewClaims()
	options.Live, options.Bounds, options.Observed = mgr.GetAPIReader(), r.bounds, slots.Observed
	if r.parts, err = journey.New(options); err != nil {
		return err
	}
	if err = metrics.Registry.Register(newInstances(r.parts)); err != nil {
		return fmt.Errorf("registering the metrics of instances: %w", err)
	}
	r.journeys = newJourneys(r.parts)
	err = ctrl.NewControllerManagedBy(mgr).Named("instance").
		For(&v1alpha1.WindowsInstance{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
			keyNews()))).
		Watches(&v1alpha1.WindowsInstance{}, handler.EnqueueRequestsFromMapFunc(r.interrupt),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.ofNode), builder.WithPredicates(nodeNews())).
		Watches(&certificatesv1.CertificateSigningRequest{}, handler.EnqueueRequestsFromMapFunc(r.ofCertificate)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.all),
			builder.WithPredicates(watch.Named(options.Namespace, contract.PrivateKeySecret))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(),
			&v1alpha1.WindowsInstance{}), builder.WithPredicates(reports(options.Namespace))).
		Watches(&v1alpha1.WindowsMachineConfig{}, handler.EnqueueRequestsFromMapFunc(r.limit),
			builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{},
				predicate.AnnotationChangedPredicate{}))).
		WatchesRawSource(source.Channel(changed, handler.EnqueueRequestsFromMapFunc(r.all))).
		WatchesRawSource(source.Channel(misplaced, handler.EnqueueRequestsFromMapFunc(r.ofNode))).
		WatchesRawSource(source.Channel(slots.Answers(), &handler.EnqueueRequestForObject{},
			source.WithBufferSize[client.Object, reconcile.Request](wakes))).
		WatchesRawSource(source.Channel(r.woken, &handler.EnqueueRequestForObject{},
			source.WithBufferSize[client.Object, reconcile.Request](wakes))).
		WatchesRawSource(source.Func(func(ctx context.Context,
			_ workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			return r.recall(ctx)
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the instance controller: %w", err)
	}
	return nil
}

// defaultJoins is the value of spec.rollout.maxConcurrentJoins if there is no WindowsMachineConfig.
const defaultJoins = 10

func (r *Reconciler) wake(key types.NamespacedName) {
	instance := &v1alpha1.WindowsInstance{}
	instance.Namespace, instance.Name = key.Namespace, key.Name
	select {
	case r.woken <- event.GenericEvent{Object: instance}:
	default:
	}
}

// ofNode returns the instance that has claimed the name of a Node.
func (r *Reconciler) ofNode(_ context.Context, node client.Object) []reconcile.Request {
	owner, ok := r.parts.Claims.Owner(node.GetName())
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: owner.Key}}
}

// ofCertificate returns the instance in a certificate request's annotation. It returns only instances in the operator's
// namespace, because any client can write this annotation, and the cache contains no other namespaces.
func (r *Reconciler) ofCertificate(_ context.Context, csr client.Object) []reconcile.Request {
	namespace, name, ok := strings.Cut(csr.GetAnnotations()[contract.InstanceAnnotation], "/")
	if !ok || namespace != r.parts.Namespace {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// The method `all` returns all instances, for objects that may concern every instance, such as the key.
func (r *Reconciler) all(ctx context.Context, _ client.Object) []reconcile.Request {
	list := &v1alpha1.WindowsInstanceList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // listing from the cache fails only when the manager stops
	}
	requests := make([]reconcile.Request, len(list.Items))
	for i := range list.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&list.Items[i])
	}
	return requests
}

// limit applies maxConcurrentJoins or its default. It returns all instances, because other settings may concern them.
func (r *Reconciler) limit(ctx context.Context, object client.Object) []reconcile.Request {
	config, err := r.config(ctx)
	if err != nil {
		return nil // reading from the cache fails only when the manager stops
	}
	r.parts.Slots.SetLimit(cmp.Or(int(config.Spec.Rollout.MaxConcurrentJoins), defaultJoins))
	return r.all(ctx, object)
}

// nodeNews selects changes of a Node that concern the operator. It ignores heartbeats and changes of images.
func nodeNews() predicate.Predicate {
	return watch.Changed(digest)
}

func digest(node *corev1.Node) []any {
	ours := map[string]string{}
	for key, value := range node.Annotations {
		if strings.HasPrefix(key, contract.Prefix) {
			ours[key] = value
		}
	}
	ready, message := journey.NodeReady(node)
	return []any{node.UID, node.Labels, ours, node.Spec.Taints, node.Spec.Unschedulable, ready, message,
		node.Status.NodeInfo.KubeletVersion, node.Status.Addresses}
}

// The predicate `reports` selects events about the Secrets of hosts that join by themselves: the creation or deletion
// of a Secret, and the first report of a host after each boot.
func reports(namespace string) predicate.Predicate {
	return predicate.And(predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetNamespace() == namespace && (strings.HasPrefix(o.GetName(), contract.CallSecretPrefix) ||
			strings.HasPrefix(o.GetName(), contract.JoinSecretPrefix))
	}), watch.Changed(func(s *corev1.Secret) string {
		var host contract.CallHost
		if json.Unmarshal(s.Data[contract.CallHostField], &host) != nil {
			return ""
		}
		return host.BootID
	}))
}

// keyNews selects changes that require a try of the key, or that show the first certificate of a Machine's host.
func keyNews() predicate.Predicate {
	return watch.Changed(func(i *v1alpha1.WindowsInstance) []string {
		return []string{i.Annotations[contract.TryKeyAnnotation], policy.HostID(i)}
	})
}
