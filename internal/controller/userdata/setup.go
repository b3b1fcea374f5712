package userdata

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/controller/watch"
)

const (
	// reconcileTimeout ends a reconcile if the API server does not answer.
	reconcileTimeout = time.Minute
	// defaultRecheck is how often the controller reads the Secrets. It can't watch them, because their namespaces, and
	// the operator's rights there, may be missing for a while.
	defaultRecheck = 20 * time.Second
	// keyGrace is how long the private key may be missing before the user data changes.
	keyGrace = time.Minute
)

// PublicKey is the key that new hosts must accept.
type PublicKey struct {
	// Line is the key as in authorized_keys: "<type> <base64>". Hash is the SHA-256 of Line, in hexadecimal.
	Line, Hash string
}

// Options of the controller. All are required.
type Options struct {
	Namespace string
	// PublicKey returns the current key. While there is no usable key, it returns a *contract.Problem.
	PublicKey func(ctx context.Context) (PublicKey, error)
	// Join returns the command that makes the hosts of Machines join by themselves, or a *contract.Problem.
	Join func(ctx context.Context, now time.Time) (string, error)
	// Platform returns the cluster's platform. While it is unknown, Platform returns a *contract.Problem.
	Platform func(ctx context.Context) (contract.Platform, error)
	// Problems collects the reasons why the user data isn't correct. Exception: another controller reports a missing or
	// unusable private key.
	Problems *problem.State
	Now      func() time.Time

	// recheck replaces defaultRecheck in tests.
	recheck time.Duration
}

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, options Options) error {
	if options.recheck == 0 {
		options.recheck = defaultRecheck
	}
	r := &reconciler{Options: options, client: mgr.GetClient(), live: mgr.GetAPIReader(),
		events: mgr.GetEventRecorder(contract.OperatorServiceAccount)}
	keys := watch.Named(options.Namespace, contract.PrivateKeySecret, contract.HostKeySecret)
	all := watch.One("", contract.UserDataSecret) // one reconcile handles all Secrets
	one := handler.EnqueueRequestsFromMapFunc(all)
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	start := source.Func(func(ctx context.Context, q queue) error {
		q.Add(all(ctx, nil)[0]) // reconcile at the start: if there is no private key, no event triggers it
		return nil
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("userdata").
		Watches(&corev1.Secret{}, one, builder.WithPredicates(keys)).
		WatchesRawSource(start).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcileTimeout}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the user data controller: %w", err)
	}
	return nil
}
