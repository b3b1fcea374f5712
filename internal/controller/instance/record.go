package instance

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// record is what is known of an instance's status, and what the API server has of it.
type record struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	life     *life
	// saved is the instance as the API server has it.
	saved *v1alpha1.WindowsInstance
	// isCurrent says that the API server had it so when it was asked or written to in this reconcile.
	isCurrent bool
	// lags says that the cache did not show what was saved last.
	lags bool
}

// load merges what was saved last into what the cache shows. A host that may be disrupted is read from the API server:
// its place may have been given back, and be another's, while the cache still shows it. While the host is looked after,
// and the cache has all that was written here, that read comes only before something is done to its node: see
// ensureCurrent. A host without a place writes one first, which fails where the cache lags behind. A cache that lags
// for longer than it may was reset: after a restore of etcd it never shows what was written before.
func (r *record) load(ctx context.Context) error {
	shown := r.instance.ResourceVersion
	r.lags = newer(shown, r.life.version) != shown || shown == r.life.version && r.life.saved != nil &&
		!equality.Semantic.DeepEqual(*r.life.saved, r.instance.Status)
	r.overlay()
	spec := &r.instance.Spec
	isQuiet := isLookedAfter(r.instance) && r.instance.DeletionTimestamp.IsZero() && !r.lags &&
		!spec.Paused && !spec.PreflightOnly // which give the place back
	isOverdue := r.lags && r.now().Sub(r.life.seen) >= journey.LongestLag
	if r.life.conflicted || isOverdue || r.mayDisrupt() && !isQuiet {
		return r.readLive(ctx)
	}
	return nil
}

// mayDisrupt says that the host has a place in the rollout budget, or was on its way with one.
func (r *record) mayDisrupt() bool {
	return r.instance.Status.Disruption != nil || journey.IsUnderWay(&r.instance.Status)
}

// isLookedAfter says that a host has joined, and not begun to join again.
func isLookedAfter(instance *v1alpha1.WindowsInstance) bool {
	switch instance.Status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseUpdating, v1alpha1.PhaseRebooting:
		return true
	}
	return false
}

// ensureCurrent is a conflict where the API server has another instance than is known here, which the next reconcile
// reads. What was read or written in this reconcile is not asked again.
func (r *record) ensureCurrent(ctx context.Context) error {
	if r.isCurrent {
		return nil
	}
	live, err := r.live(ctx)
	if err == nil && (live.ResourceVersion != r.version() ||
		!equality.Semantic.DeepEqual(live.Status, r.saved.Status)) { // the same version again, after a restore of etcd
		r.life.conflicted, err = true, conflict(r.instance)
	}
	r.isCurrent = err == nil
	return err
}

// overlay puts what is known over what the cache shows, unless the cache shows what somebody else
// wrote after us: then another operator leads, or did, and what it wrote counts.
func (r *record) overlay() {
	shown := r.instance.ResourceVersion
	if r.life.saved != nil && shown != r.life.version && newer(r.life.version, shown) == shown &&
		!r.isKnown(&r.instance.Status) {
		r.life.status, r.life.saved = nil, nil
	}
	if r.life.saved != nil {
		r.life.saved.DeepCopyInto(&r.saved.Status)
	}
	if r.life.status != nil {
		r.life.status.DeepCopyInto(&r.instance.Status)
	}
	boundTimes(&r.instance.Status, r.now())
}

// isKnown says that a status is what was saved last, or what is to be saved, and that may have
// arrived.
func (r *record) isKnown(status *v1alpha1.WindowsInstanceStatus) bool {
	return r.life.saved != nil && (equality.Semantic.DeepEqual(*r.life.saved, *status) ||
		equality.Semantic.DeepEqual(*r.life.status, *status))
}

// readLive goes on with the instance as the API server has it, whatever was seen: etcd may have been
// restored to an earlier version of it.
func (r *record) readLive(ctx context.Context) error {
	live, err := r.live(ctx)
	if err != nil {
		return err
	}
	live.DeepCopyInto(r.saved)
	live.DeepCopyInto(r.instance)
	if r.isKnown(&live.Status) {
		r.life.status.DeepCopyInto(&r.instance.Status)
	}
	boundTimes(&r.instance.Status, r.now())
	r.life.conflicted, r.life.version, r.life.seen = false, live.ResourceVersion, r.now()
	r.isCurrent = true
	r.remember()
	return nil
}

// live reads the instance past the cache.
func (r *record) live(ctx context.Context) (*v1alpha1.WindowsInstance, error) {
	live := &v1alpha1.WindowsInstance{}
	err := r.parts.Live.Get(ctx, r.life.key, live)
	switch {
	case apierrors.IsNotFound(err), err == nil && live.UID != r.life.uid:
		return nil, errGone
	case err != nil:
		return nil, fmt.Errorf("reading the instance past the cache: %w", err)
	}
	return live, nil
}

// isUrgent says that somebody waits for what is to be written: for a place in the rollout budget, or
// for a node that serves or does not.
func (r *record) isUrgent() bool {
	of := func(status *v1alpha1.WindowsInstanceStatus) [4]bool {
		return [4]bool{
			status.Disruption != nil, status.Update != nil, status.Reboot != nil,
			meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady),
		}
	}
	return of(&r.saved.Status) != of(&r.instance.Status)
}

// save writes the status where it differs from what the API server has. What can't be written now
// is kept and written later: a pinned host key or a reboot that was asked for must not be lost.
func (r *record) save(ctx context.Context) error {
	fit(&r.instance.Status)
	r.remember()
	if equality.Semantic.DeepEqual(r.saved.Status, r.instance.Status) {
		return nil
	}
	r.instance.ResourceVersion = r.life.version
	patch, err := statusPatch(r.instance)
	if err != nil {
		return err
	}
	patched := r.instance.DeepCopy()
	if err = r.client.Status().Patch(ctx, patched, patch); err != nil {
		r.life.conflicted = apierrors.IsConflict(err)
		return fmt.Errorf("saving the status: %w", vanished(err))
	}
	ready := func(status v1alpha1.WindowsInstanceStatus) bool {
		return meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
	}
	isReturned := r.saved.Status.Disruption != nil && r.instance.Status.Disruption == nil
	serves := !ready(r.saved.Status) && ready(r.instance.Status)
	r.isCurrent = true
	r.life.saved, r.life.version, r.life.seen = r.life.status.DeepCopy(), patched.ResourceVersion, r.now()
	r.saved.Status = *r.life.status.DeepCopy()
	r.instance.ResourceVersion, r.saved.ResourceVersion = patched.ResourceVersion, patched.ResourceVersion
	if isReturned || serves {
		r.gate.Freed()
	}
	return nil
}

// version is that under which the next write is made.
func (r *record) version() string { return newer(r.instance.ResourceVersion, r.life.version) }

// remember keeps what is known, and what it was made from.
func (r *record) remember() {
	r.life.status, r.life.saved = r.instance.Status.DeepCopy(), r.saved.Status.DeepCopy()
	if version := r.version(); version != r.life.version {
		r.life.version, r.life.seen = version, r.now()
	}
}

// postpone keeps to itself what is known, until it is time to come again.
func (r *record) postpone(after, wait time.Duration) (ctrl.Result, error) {
	r.remember()
	return ctrl.Result{RequeueAfter: policy.Soonest(after, wait)}, nil
}

// saveOrRevert makes a change and saves it. Unlike all else, what could not be written now must not be
// written later.
func (r *record) saveOrRevert(ctx context.Context, change func()) error {
	before := r.instance.Status.DeepCopy()
	change()
	err := r.save(ctx)
	if err != nil {
		r.instance.Status, r.life.status = *before, before.DeepCopy()
	}
	return err
}

// statusPatch replaces the status, of this very instance only, as it was last seen or written: one
// that took the name meanwhile has another UID, and what another operator wrote meanwhile, such as
// a place in the rollout budget, is not overwritten. A merge patch could not name the UID, because
// the API server overlooks what a patch of a status says about anything but the resource version.
func statusPatch(instance *v1alpha1.WindowsInstance) (client.Patch, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	text, err := json.Marshal([]operation{{"test", "/metadata/uid", instance.UID},
		{"add", "/metadata/resourceVersion", instance.ResourceVersion}, {"add", "/status", instance.Status}})
	if err != nil {
		return nil, fmt.Errorf("encoding the status: %w", err)
	}
	return client.RawPatch(types.JSONPatchType, text), nil
}

// newer of two versions of one object, which are numbers that grow (KEP-5504).
func newer(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order < 0 {
		return b
	}
	return a
}
