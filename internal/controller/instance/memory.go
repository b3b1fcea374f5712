package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/instance/disrupt"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// memory is the data about an instance that the operator needs in later reconciles and can't read again. Only one
// worker at a time reconciles an instance and uses its memory.
type memory struct {
	uid     types.UID
	key     types.NamespacedName
	session journey.Session
	// version is the newest resource version that the operator read or wrote. versionAt is when it did so.
	version   string
	versionAt time.Time
	// isBehind reports that the API server refused a write because the instance has a newer version.
	isBehind bool
	// fetch is what the daemon last reported about the download of its payload.
	fetch   disrupt.Fetch
	reboots disrupt.Reboots
	// requestedAt is when the operator last requested a revision from the daemon.
	requestedAt time.Time
	// dialledAt is when the operator last dialled a host that did not come back from a reboot.
	dialledAt time.Time
	// keyTrial is the last try of a private key. keyRequest is the last value of contract.TryKeyAnnotation.
	keyTrial   keyTrial
	keyRequest string
	// interrupt ends the work at the host. It is nil if there is no such work. Reconciler.mu guards it.
	interrupt context.CancelCauseFunc
	// failedIn is the phase of the last failed attempt, as long as the status shows the reason of this failure.
	failedIn v1alpha1.Phase
	// isHurried reports that a user has ended the pause that follows the last failed attempt.
	isHurried bool
	// isReached reports that the host was ready to be disrupted, but got no slot: see awaitTurn.
	isReached bool
	// left: only the finalizer remains. gone: the instance is deleted, but may still be in the cache.
	left, gone bool
}

// recall restores the claims of all instances when this operator becomes the leader, before it reconciles any.
// Otherwise, a second entry for a host could claim the host first. Instances with a node come first, so that they keep
// their claims.
func (r *Reconciler) recall(ctx context.Context) error {
	list := &v1alpha1.WindowsInstanceList{}
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing instances: %w", err)
	}
	for _, isNode := range []bool{true, false} {
		for i := range list.Items {
			if one := &list.Items[i]; isNode == journey.HasName(&one.Status) {
				r.memory(one)
				r.parts.Claims.Remember(one)
			}
		}
	}
	r.parts.Observed.Lead()
	return nil
}

// memory returns or creates an instance's memory. It ends the work for an earlier instance with the same name.
func (r *Reconciler) memory(instance *v1alpha1.WindowsInstance) *memory {
	key := client.ObjectKeyFromObject(instance)
	r.mu.Lock()
	found := r.memories[key]
	r.mu.Unlock()
	switch {
	case found != nil && found.uid == instance.UID:
		return found
	case found != nil:
		r.forget(key)
	}
	begun := &memory{uid: instance.UID, key: key}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memories[key] = begun
	return begun
}

// forget drops an instance's memory and ends its work. Work may remain if a user removed the finalizer by force.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	past := r.memories[key]
	delete(r.memories, key)
	r.mu.Unlock()
	if past != nil {
		r.end(past)
	}
}

// end releases everything that the operator holds for an instance. It can be called more than once.
func (r *Reconciler) end(one *memory) {
	one.gone = true
	one.session.End()
	r.parts.Slots.Release(one.key)
	r.trials.Release(one.key)
	r.parts.Claims.Forget(one.uid)
}

// errLeaving is the cause of the cancellation if the instance of a host is deleted.
var errLeaving = errors.New("the removal of the instance was requested")

// interruptible returns a context that the method `interrupt` cancels. The caller must call `ended` after the work.
func (r *Reconciler) interruptible(ctx context.Context, one *memory) (work context.Context, ended func()) {
	work, cancel := context.WithCancelCause(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	one.interrupt = cancel
	return work, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		one.interrupt = nil
		cancel(nil)
	}
}

// interrupt cancels the work at the host of an instance that is being deleted. Otherwise, the removal would wait for
// this work, for example for a transfer to a host that is being destroyed. The next reconcile removes the host.
func (r *Reconciler) interrupt(_ context.Context, instance client.Object) []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.memories[client.ObjectKeyFromObject(instance)]
	if one != nil && one.uid == instance.GetUID() && one.interrupt != nil &&
		!instance.GetDeletionTimestamp().IsZero() {
		one.interrupt(errLeaving)
	}
	return nil
}

func vanished(err error) error {
	if apierrors.IsNotFound(err) {
		return errGone
	}
	return err
}
