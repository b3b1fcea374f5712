package instance

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// gather reads the instance and its Node for one reconcile. If a node is in service without work in progress, or if a
// host joins for the first time, the cache is sufficient. Otherwise, gather reads the instance, its Node and the list
// of slots from the API server, because the cache may still contain a slot, a Node or a revision that no longer exists.
// Every write contains the resource version that was read here. If another client has changed the object, the write
// fails.
func (r *Reconciler) gather(ctx context.Context, cached *v1alpha1.WindowsInstance,
	kept *memory) (*reconciliation, error) {
	var node *corev1.Node
	var err error
	if name := cached.Status.NodeName; name != "" {
		if node, err = r.parts.Nodes.Get(ctx, name); err != nil {
			return nil, err
		}
	}
	order, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, kept.version)
	isOld := err == nil && order < 0
	switch {
	case isOld && r.now().Sub(kept.versionAt) < longestLag:
		return nil, errLags
	case !isOld && !kept.isBehind && r.isSettled(ctx, cached, node):
		return newReconciliation(r, cached, node, kept), nil
	}
	live := &v1alpha1.WindowsInstance{}
	err = r.parts.Live.Get(ctx, kept.key, live)
	switch {
	case apierrors.IsNotFound(err), err == nil && live.UID != kept.uid:
		return nil, errGone
	case err != nil:
		return nil, fmt.Errorf("reading the instance past the cache: %w", err)
	}
	kept.isBehind = false
	kept.knows(live.ResourceVersion, r.now())
	if live.Status.NodeName != "" {
		if node, err = r.parts.Nodes.Live(ctx, live.Status.NodeName); err != nil {
			return nil, err
		}
	}
	if live.Status.HasSlot() {
		has, err := r.rollout.HasSlot(ctx, live)
		if err != nil {
			return nil, fmt.Errorf("reading which hosts hold a slot in the rollout budget: %w", err)
		}
		if !has {
			live.Status.Slot.Since = nil // the instance must request a slot again
		}
	}
	return newReconciliation(r, live, node, kept), nil
}

// isSettled reports whether the cache is sufficient, because no work that disrupts a node is in progress.
func (r *Reconciler) isSettled(ctx context.Context, instance *v1alpha1.WindowsInstance, node *corev1.Node) bool {
	status := &instance.Status
	switch {
	case status.Slot != nil || status.Activity.Begun():
		return false
	case !instance.DeletionTimestamp.IsZero():
		return instance.Spec.RemovalPolicy == v1alpha1.RemovalDiscard
	case isLookedAfter(instance):
		return node != nil && policy.IsReady(node) && !r.journeys.health.Corrects(ctx, instance, node)
	}
	return !status.Joined() && (node == nil || node.Annotations[contract.DesiredRevisionAnnotation] == "" ||
		node.Annotations[contract.DesiredRevisionAnnotation] == status.DesiredRevision)
}

// isLookedAfter reports whether a host has joined and no join is in progress.
func isLookedAfter(instance *v1alpha1.WindowsInstance) bool {
	switch instance.Status.Phase {
	case v1alpha1.PhaseReady, v1alpha1.PhaseUpdating, v1alpha1.PhaseRebooting:
		return true
	}
	return false
}

// Normally, the cache shows the operator's own writes within milliseconds. After a restore of etcd, it may never show
// them, so the operator stops waiting after longestLag.
const (
	lagRetry   = 50 * time.Millisecond
	longestLag = time.Minute
)

// errLags means that the cache does not contain the operator's last write yet.
var errLags = errors.New("the cache lags behind")

// The method `knows` records the instance's newest resource version. Versions can be compared as numbers (KEP-5504).
func (m *memory) knows(version string, now time.Time) {
	if m.version != version {
		m.version, m.versionAt = version, now
	}
}
