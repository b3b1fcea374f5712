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

// memory holds data about an instance that must survive between reconciles and that can't be read again. Only one
// worker at a time reconciles an instance and uses its memory.
type memory struct {
	uid     types.UID
	key     types.NamespacedName
	session journey.Session
	// version is the newest resource version of the instance that was read or written. versionAt is when that
	// happened.
	version   string
	versionAt time.Time
	// isBehind reports that a write was refused because of a newer version.
	isBehind bool
	// fetch is what the daemon last reported about its payload.
	fetch disrupt.Fetch
	// reboots are the reboots of the host in a row.
	reboots disrupt.Reboots
	// requestedAt is when a revision was last requested from the daemon.
	requestedAt time.Time
	// dialledAt is when the operator last dialled a host that did not come back from a reboot.
	dialledAt time.Time
	// keyTrial is the last try of a private key on a host that has joined. keyRequest is the last request for a try.
	keyTrial   keyTrial
	keyRequest string
	// interrupt ends the work at the host, or is nil if there is none. Reconciler.mu guards it.
	interrupt context.CancelCauseFunc
	// failedIn is the phase of the last failed attempt. The status shows the reason until an attempt passes that
	// phase.
	failedIn v1alpha1.Phase
	// isHurried reports that a user ended the pause after the last failed attempt.
	isHurried bool
	// isReached reports that the host was ready to be disrupted, and then lost its turn. The next time, it keeps
	// its slot from the beginning.
	isReached bool
	// left reports that the host was removed and only the finalizer is left. gone reports that the instance is
	// deleted, although the cache may still show it.
	left, gone bool
}

// recall restores the claims of all instances after a start, before any instance is reconciled. Otherwise a second
// entry for the same host could claim the host first. recall starts with instances that have a node, so that no host
// without a node takes a claim from them.
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
			if one := &list.Items[i]; isNode == journey.HasName(&one.Status) {
				r.begin(one)
			}
		}
	}
	r.isRecalled = true
	r.parts.Observed.Lead()
	return nil
}

// begin creates the memory of an instance. The caller holds r.mu.
func (r *Reconciler) begin(instance *v1alpha1.WindowsInstance) *memory {
	started := &memory{uid: instance.UID, key: client.ObjectKeyFromObject(instance)}
	r.memories[instance.UID] = started
	r.parts.Claims.Remember(instance)
	return started
}

// memory returns the memory of an instance, or creates it. It drops the memory of an earlier instance of that name.
func (r *Reconciler) memory(instance *v1alpha1.WindowsInstance) *memory {
	r.mu.Lock()
	found, ok := r.memories[instance.UID]
	r.mu.Unlock()
	if ok {
		return found
	}
	r.forget(client.ObjectKeyFromObject(instance), instance.UID)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begin(instance)
}

// forget drops the memories of all earlier instances of a name. If the finalizer of an instance was removed by force,
// its work may still be running.
func (r *Reconciler) forget(key types.NamespacedName, present types.UID) {
	var past []*memory
	r.mu.Lock()
	for uid, one := range r.memories {
		if one.key == key && uid != present {
			past = append(past, one)
			delete(r.memories, uid)
		}
	}
	r.mu.Unlock()
	for _, one := range past {
		r.end(one)
	}
}

// end releases everything that an instance holds in memory. A repeated call does nothing.
func (r *Reconciler) end(one *memory) {
	one.gone = true
	one.session.End()
	r.parts.Slots.Release(one.uid)
	r.trials.Release(one.uid)
	r.parts.Claims.Forget(one.uid)
}

// errLeaving is the cause that ends a phase when the removal of its host is requested.
var errLeaving = errors.New("the removal of the instance was requested")

// interruptible returns a context for work at the host that ends if the instance is deleted. Call ended when the
// work is over.
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

// interrupt ends the work at the host of an instance that is deleted. Otherwise the removal would wait for this work,
// for example for a transfer to a host that is being destroyed. The next reconcile removes the host.
func (r *Reconciler) interrupt(_ context.Context, instance client.Object) []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.memories[instance.GetUID()]
	if ok && one.interrupt != nil && !instance.GetDeletionTimestamp().IsZero() {
		one.interrupt(errLeaving)
	}
	return nil
}

// vanished returns errGone if the instance no longer exists.
func vanished(err error) error {
	if apierrors.IsNotFound(err) {
		return errGone
	}
	return err
}
