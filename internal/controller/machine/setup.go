package machine

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/instance/credential"
)

// DefaultRefusalTimeout is how long a host that has never accepted a key may refuse the current key before its Machine
// is replaced. The script in the user data runs for minutes, and sshd may answer before the script authorises the key.
const DefaultRefusalTimeout = 5 * time.Minute

// Options of the controller. All are required.
type Options struct {
	Namespace string
	// Platform returns the cluster's platform. While the platform is unknown, it returns an error.
	Platform func(ctx context.Context) (contract.Platform, error)
	// Changed receives an event whenever the result of Platform may have changed.
	Changed <-chan event.GenericEvent
	// View reads Machines for other controllers. They may use the View before this controller sets the View's cache.
	View *View
	// Rollout decides which Machines may be deleted. The option Sets of the Rollout must be the same View.
	Rollout *rollout.Rollout
	// Problems receives the reasons why Machines don't become nodes.
	Problems *problem.State
	// Keys reads the private key through the cache. LiveKeys reads it from the API server.
	Keys, LiveKeys credential.Keys
	// UserData reports whether the user data of new Machines contains the public key with this hash.
	UserData func(ctx context.Context, keyHash string) (bool, error)
	// ByItself reports whether the hosts of new Machines join by themselves.
	ByItself func(ctx context.Context) (bool, error)
	// RefusalTimeout is how long a host that has never accepted a key may refuse the current key.
	RefusalTimeout time.Duration
	Now            func() time.Time
}

// Setup adds a runnable to a manager. The runnable starts the controller as soon as the cluster has the Machine API.
func Setup(mgr ctrl.Manager, options Options) error {
	if err := mgr.Add(&starter{mgr: mgr, options: options, retry: apiRetry}); err != nil {
		return fmt.Errorf("setting up the machine controller: %w", err)
	}
	return nil
}
