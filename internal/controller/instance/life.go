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
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// life is what is kept of an instance between reconciles: what can't be read again. One worker at a time has an
// instance's key, and with it its life.
type life struct {
	uid     types.UID
	key     types.NamespacedName
	session journey.Session
	// version is the newest resource version of the instance that was read or written, at versionAt.
	version   string
	versionAt time.Time
	// isBehind says that a write was refused, because the API server has another version.
	isBehind bool
	// rebootWithdrawn says that no reboot was requested when that was looked at last.
	rebootWithdrawn bool
	// requestedAt is when a revision was last requested of its daemon.
	requestedAt time.Time
	// dialledAt is when a host that did not come back from a reboot was dialled last.
	dialledAt time.Time
	// interrupt ends what is under way at the host; nil while nothing is. Reconciler.mu guards it.
	interrupt context.CancelCauseFunc
	// failedIn is the phase in which the last attempt failed. Its reason stays on show until an
	// attempt gets past that phase.
	failedIn v1alpha1.Phase
	// isReached says that the host was ready to be disrupted, and had lost its turn meanwhile: the next time it
	// keeps its place from the beginning.
	isReached bool
	// left says that the host was given back and only the finalizer stands; gone that the instance
	// is no more, although the cache may still show it.
	left, gone bool
}

// recall claims, once after a start, what every instance had claimed before: otherwise a second
// entry of the same host could be faster. Who has a node goes first: what a host that has not joined
// says of itself takes nothing from it.
func (r *Reconciler) recall(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.isRecalled {
		return nil
	}
	list := &v1alpha1.WindowsInstanceList{}
	if err := r.client.List(ctx, list); err != nil {
		return fmt.Errorf("listing instances: %w", err)
	}
	for _, isNode := range []bool{true, false} {
		for i := range list.Items {
			if one := &list.Items[i]; isNode == (one.Status.NodeUID != "") {
				r.begin(one)
			}
		}
	}
	r.isRecalled = true
	r.parts.Observed.Lead()
	return nil
}

// begin starts a life. r.mu is held.
func (r *Reconciler) begin(instance *v1alpha1.WindowsInstance) *life {
	started := &life{uid: instance.UID, key: client.ObjectKeyFromObject(instance)}
	r.lives[instance.UID] = started
	r.parts.Claims.Remember(instance)
	return started
}

// life finds or begins what is kept of an instance. One that had its name before is gone.
func (r *Reconciler) life(instance *v1alpha1.WindowsInstance) *life {
	r.mu.Lock()
	found, ok := r.lives[instance.UID]
	r.mu.Unlock()
	if ok {
		return found
	}
	r.forget(client.ObjectKeyFromObject(instance), instance.UID)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin(instance)
}

// forget drops every instance of a name but the present one. One that lost its finalizer by force
// is still at work here.
func (r *Reconciler) forget(key types.NamespacedName, present types.UID) {
	var past []*life
	r.mu.Lock()
	for uid, one := range r.lives {
		if one.key == key && uid != present {
			past = append(past, one)
			delete(r.lives, uid)
		}
	}
	r.mu.Unlock()
	for _, one := range past {
		r.end(one)
	}
}

// end gives back everything that an instance holds in memory. A repeated call finds nothing to do.
func (r *Reconciler) end(one *life) {
	one.gone = true
	one.session.End()
	r.parts.Slots.Release(one.uid)
	r.trials.Release(one.uid)
	r.parts.Claims.Forget(one.uid)
}

// errLeaving ends a phase of a host that is told to leave.
var errLeaving = errors.New("the instance is told to leave")

// interruptible gives the context of work at the host, which ends when the instance is told to
// leave. ended says that the work is over.
func (r *Reconciler) interruptible(ctx context.Context, one *life) (work context.Context, ended func()) {
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

// interrupt ends what is under way at the host of an instance that is told to leave: nobody should
// wait for a transfer to a host that is being destroyed. The reconcile that follows takes the host
// out.
func (r *Reconciler) interrupt(_ context.Context, instance client.Object) []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one, ok := r.lives[instance.GetUID()]; ok && one.interrupt != nil && !instance.GetDeletionTimestamp().IsZero() {
		one.interrupt(errLeaving)
	}
	return nil
}

// vanished tells an instance that is not there any more from other troubles of a write.
func vanished(err error) error {
	if apierrors.IsNotFound(err) {
		return errGone
	}
	return err
}
