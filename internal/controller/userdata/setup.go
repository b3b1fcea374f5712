package userdata

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
	"github.com/windows-nodes/wmco/internal/controller/watch"
)

// reconcileTimeout ends a look that waits for an API server that does not answer.
const reconcileTimeout = time.Minute

// PublicKey is the key that machines are told to accept.
type PublicKey struct {
	// Line of authorized_keys, "<type> <base64>", and the hex SHA-256 of it.
	Line, Hash string
}

// Options of the controller. All are required but Now.
type Options struct {
	// Namespace of the operator.
	Namespace string
	// Secrets watches.
	Secrets kubernetes.Interface
	// PublicKey answers with a *contract.Problem while there is no usable key.
	PublicKey func(ctx context.Context) (PublicKey, error)
	// Platform answers with a *contract.Problem while nobody knows where the cluster runs.
	Platform func(ctx context.Context) (contract.Platform, error)
	// Now is the clock; time.Now when nil.
	Now func() time.Time

	// recheck is another time than defaultRecheck, for tests.
	recheck time.Duration
}

// Setup adds the controller to a manager and gives what it finds wrong.
func Setup(mgr ctrl.Manager, options Options) (*State, error) {
	if options.Namespace == "" || options.Secrets == nil || options.PublicKey == nil || options.Platform == nil {
		return nil, errors.New("setting up the user data controller: an option is missing")
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.recheck == 0 {
		options.recheck = defaultRecheck
	}
	r := &reconciler{
		Options: options, client: mgr.GetClient(), live: mgr.GetAPIReader(),
		events:  mgr.GetEventRecorder(contract.OperatorServiceAccount),
		watcher: newWatcher(mgr, options.Secrets), state: newState(), rewrites: rewrites{},
	}
	first := batch.NewSignal()
	first.Send(&corev1.Secret{})
	keys := watch.Named(options.Namespace, contract.PrivateKeySecret, contract.HostKeySecret)
	one := handler.EnqueueRequestsFromMapFunc(watch.One("", contract.UserDataSecret)) // the secrets are one thing
	err := ctrl.NewControllerManagedBy(mgr).Named("userdata").
		Watches(&corev1.Secret{}, one, builder.WithPredicates(keys)).
		WatchesRawSource(source.Channel(r.watcher.changed, one)).
		// One look at the start finds what changed while nobody looked.
		WatchesRawSource(source.Channel(first, one)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: reconcileTimeout}).
		Complete(r)
	if err != nil {
		return nil, fmt.Errorf("setting up the user data controller: %w", err)
	}
	return r.state, nil
}
