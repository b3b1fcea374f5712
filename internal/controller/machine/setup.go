package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/instance/credential"
)

// DefaultRefusalTimeout is how long a host that never accepted a key may refuse it before its
// Machine is replaced: the user data of a Windows host takes some minutes, and sshd may answer
// before it is done.
const DefaultRefusalTimeout = 5 * time.Minute

// Options of the controllers. All are required but those that say otherwise.
type Options struct {
	// Namespace of the operator, where the instances are.
	Namespace string
	// Platform tells where the cluster runs, or an error while nobody knows.
	Platform func(ctx context.Context) (contract.Platform, error)
	// Changed delivers whenever Platform may answer otherwise than before.
	Changed <-chan event.GenericEvent
	// View is filled in by the controllers; others may have it before they run.
	View *View
	// Rollout lets Machines be deleted one after the other. Its Sets are the View's.
	Rollout *rollout.Rollout
	// Problems gets what keeps Machines from becoming nodes.
	Problems *problem.State
	// Keys reads the private key through the cache, LiveKeys past it.
	Keys, LiveKeys credential.Keys
	// UserData says whether what Machines are made from holds a key, by its hash; nil takes it to
	// do so.
	UserData func(keyHash string) bool
	// RefusalTimeout is how long a host that never accepted a key may refuse it;
	// DefaultRefusalTimeout when 0.
	RefusalTimeout time.Duration
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

func (o Options) withDefaults() (Options, error) {
	if o.Namespace == "" || o.Platform == nil || o.Changed == nil || o.View == nil || o.Rollout == nil ||
		o.Problems == nil || o.Keys == nil || o.LiveKeys == nil {
		return o, errors.New("setting up the machine controllers: an option is missing")
	}
	if o.RefusalTimeout == 0 {
		o.RefusalTimeout = DefaultRefusalTimeout
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o, nil
}

// Setup adds to a manager what begins the controllers as soon as the cluster has the Machine API,
// at the start or later.
func Setup(mgr ctrl.Manager, options Options) error {
	options, err := options.withDefaults()
	if err != nil {
		return err
	}
	if err = mgr.Add(&starter{mgr: mgr, options: options, retry: apiRetry}); err != nil {
		return fmt.Errorf("setting up the machine controllers: %w", err)
	}
	return nil
}
