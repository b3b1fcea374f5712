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
	// reconcileTimeout ends a reconcile that waits for an API server that does not answer.
	reconcileTimeout = time.Minute
	// defaultRecheck is how often the secrets are read. Nothing watches the secrets, because their namespaces, and
	// the operator's rights there, may be missing for a while. It also bounds how often the operator writes if
	// another client keeps changing a secret.
	defaultRecheck = 20 * time.Second
	// keyGrace is how long the private key may be missing.
	keyGrace = time.Minute
)

// PublicKey is the key that machines must accept.
type PublicKey struct {
	// Line of authorized_keys, "<type> <base64>", and the hex SHA-256 of it.
	Line, Hash string
}

// Options of the controller. All are required.
type Options struct {
	// Namespace of the operator.
	Namespace string
	// PublicKey returns a *contract.Problem while there is no usable key.
	PublicKey func(ctx context.Context) (PublicKey, error)
	// Join returns the command with which the hosts of Machines join by themselves, or a *contract.Problem.
	Join func(ctx context.Context, now time.Time) (string, error)
	// Platform returns a *contract.Problem while it is unknown where the cluster runs.
	Platform func(ctx context.Context) (contract.Platform, error)
	// Problems receives the reasons why the user data isn't correct. Another controller reports a missing or unusable
	// private key.
	Problems *problem.State
	// Now is the clock.
	Now func() time.Time

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
	all := watch.One("", contract.UserDataSecret) // one reconcile handles all secrets
	one := handler.EnqueueRequestsFromMapFunc(all)
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	start := source.Func(func(ctx context.Context, q queue) error {
		q.Add(all(ctx, nil)[0]) // without a private key, there is no event
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
