package csr

import (
	"context"
	"fmt"
	"net/netip"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/policy"
)

// workers is the number of concurrent decisions. A decision needs at most three short API requests. If a whole fleet
// joins at the same time, each host creates three certificate requests.
const workers = 8

// Options of the controller. All are required.
type Options struct {
	// Namespace is the namespace of the operator and of the instances.
	Namespace string
	// OperatorUser is the user name of the operator, which submits the daemons' first requests.
	OperatorUser string
	// BootstrapUser is the user name that kubelets have when they request their first certificate.
	BootstrapUser string
	// ServiceNetwork returns the prefix of the cluster's service addresses. Only serving certificates need this prefix.
	ServiceNetwork func(ctx context.Context) (netip.Prefix, error)
	// Reserved returns the addresses of the API server and of pods, and the names of the API server. No host may have
	// them. If Reserved or ServiceNetwork returns a problem, the request waits.
	Reserved func(ctx context.Context) (addresses []netip.Prefix, names []string, err error)
	// Machine returns the Machine that an instance was created from. It returns nil if this Machine doesn't exist or
	// has other user data. Only the first request of a Machine's host needs it.
	Machine func(ctx context.Context, source *v1alpha1.Source) (*policy.CSRMachine, error)
	// UsedTokens collects the bootstrap tokens that no more requests may use.
	UsedTokens *UsedTokens
}

// OperatorUser returns the user name of the operator's service account in its namespace.
func OperatorUser(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + contract.OperatorServiceAccount
}

// Setup adds the controller and its indexes to a manager.
func Setup(mgr ctrl.Manager, options Options) error {
	for _, i := range indexes(options.BootstrapUser) {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), i.object, i.field, i.values); err != nil {
			return fmt.Errorf("indexing for the csr controller: %w", err)
		}
	}
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(contract.OperatorServiceAccount),
		options)
	err := ctrl.NewControllerManagedBy(mgr).Named("csr").
		For(&certificatesv1.CertificateSigningRequest{}, builder.WithPredicates(claiming(options.OperatorUser))).
		Watches(&v1alpha1.WindowsInstance{}, handler.EnqueueRequestsFromMapFunc(r.news),
			builder.WithPredicates(instanceNews())).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(r.news), builder.WithPredicates(nodeNews())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the csr controller: %w", err)
	}
	return nil
}

func newReconciler(cached client.Client, live client.Reader, recorder events.EventRecorder,
	options Options) *Reconciler {
	return &Reconciler{client: cached, live: live, events: recorder, options: options,
		used: used{keys: cache.NewLRUExpireCache(usedCount)}}
}

// claiming selects pending requests for the identity of a node or host, and requests that the operator submitted.
func claiming(operator string) predicate.Predicate {
	pending := predicate.NewPredicateFuncs(func(o client.Object) bool {
		csr, ok := o.(*certificatesv1.CertificateSigningRequest)
		if !ok {
			return false
		}
		_, claims := policy.ClaimOf(csr)
		return claims || csr.Spec.Username == operator
	})
	return predicate.And(pending, predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }})
}

// instanceNews and nodeNews select changes that may change a decision. nodeNews ignores heartbeats.
func instanceNews() predicate.Predicate { return watch.Changed(policy.CSRInstanceOf) }

func nodeNews() predicate.Predicate {
	return watch.Changed(func(node *corev1.Node) []any {
		return []any{node.Annotations[contract.InstanceAnnotation], node.Labels[corev1.LabelOSStable],
			policy.IsReady(node), node.Status.Addresses}
	})
}

// The method `news` returns the pending requests with the name or an address of an instance or a Node.
func (r *Reconciler) news(ctx context.Context, object client.Object) []reconcile.Request {
	switch o := object.(type) {
	case *v1alpha1.WindowsInstance:
		return r.about(ctx, append(addressesOfInstance(o), nodeKey(o.Status.NodeName), hostKey(policy.HostID(o))))
	case *corev1.Node:
		return r.about(ctx, append(addressesOfNode(o), nodeKey(o.Name)))
	}
	return nil
}

func (r *Reconciler) about(ctx context.Context, keys []string) []reconcile.Request {
	var requests []reconcile.Request
	for _, key := range keys {
		list := &certificatesv1.CertificateSigningRequestList{}
		if err := r.client.List(ctx, list, client.MatchingFields{requestsAbout: key}); err != nil {
			return nil // listing from the cache fails only when the manager stops
		}
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return requests
}
