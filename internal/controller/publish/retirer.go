package publish

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// retirer deletes the revisions that nothing uses.
type retirer struct {
	client    client.Client
	source    *Source
	tell      recorder
	meters    *meters
	namespace string
	grace     time.Duration
	now       func() time.Time
	// unused is the time since when a revision is unused, by the name of its objects. Only one worker uses it.
	unused map[string]time.Time
}

var _ reconcile.Reconciler = (*retirer)(nil)

// Reconcile deletes the revisions that nothing has used for the grace period. The grace period starts again when the
// operator restarts.
func (r *retirer) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	current, _, ok := r.source.Published()
	if !ok {
		return ctrl.Result{}, nil // the source sends an event when there is one
	}
	used, err := r.used(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	all, err := revisions(ctx, r.client, r.namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	used[current.Revision] = true
	since := map[string]time.Time{}
	var next time.Duration
	for name, found := range all {
		id, isKept := strings.TrimPrefix(name, contract.ServicesConfigMapPrefix), found.isGenuine()
		if c := found.manifest; c != nil && isOurs(c) && (!used[id] || !isKept) && id != current.Revision {
			since[name] = r.now()
			if before, known := r.unused[name]; known {
				since[name] = before
			}
			why, left := manifestFate(found, since[name].Add(r.grace).Sub(r.now()))
			if err = r.retire(ctx, c, why); err != nil {
				return ctrl.Result{}, err
			}
			next, isKept = policy.Soonest(next, left), isKept && why == ""
		}
		if s := found.secret; s != nil && isOurs(s) && id != current.Revision {
			why, left := secretFate(found, isKept, s.CreationTimestamp.Add(r.grace).Sub(r.now()))
			if err = r.retire(ctx, s, why); err != nil {
				return ctrl.Result{}, err
			}
			next = policy.Soonest(next, left)
		}
	}
	r.unused = since
	return ctrl.Result{RequeueAfter: next}, nil
}

// used returns the revisions that Nodes run, will run, prefetch or may roll back to, and the revisions of joining
// hosts.
func (r *retirer) used(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, key := range revisionAnnotations() {
			all[nodes.Items[i].Annotations[key]] = true
		}
	}
	instances := &v1alpha1.WindowsInstanceList{}
	if err := r.client.List(ctx, instances, client.InNamespace(r.namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	for i := range instances.Items {
		for _, revision := range revisionsOf(instances.Items[i].Status) {
			all[revision] = true
		}
	}
	return all, nil
}

// manifestFate returns why the manifest of an unused revision is deleted now, or how long it stays. left is the
// rest of the grace period.
func manifestFate(found revision, left time.Duration) (why string, stays time.Duration) {
	switch {
	case !found.isGenuine():
		return "its content is not what its name says", 0
	case left > 0:
		return "", left
	}
	return "no node uses it", 0
}

// secretFate is manifestFate for the Secret of a revision. A Secret is published before its manifest, so a Secret
// without a manifest stays for the grace period.
func secretFate(found revision, hasManifest bool, left time.Duration) (why string, stays time.Duration) {
	switch {
	case hasManifest && found.isComplete():
		return "", 0
	case hasManifest:
		return "its content is not what its manifest says", 0
	case left > 0:
		return "", left
	}
	return "its manifest is gone", 0
}

// retire deletes a ConfigMap or Secret if there is a reason.
func (r *retirer) retire(ctx context.Context, object client.Object, why string) error {
	if why == "" || !object.GetDeletionTimestamp().IsZero() { // a finalizer keeps it
		return nil
	}
	err := r.client.Delete(ctx, object, exactly(object))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // its event starts the next reconcile
	}
	if err != nil {
		return fmt.Errorf("retiring %T %s: %w", object, object.GetName(), err)
	}
	logf.FromContext(ctx).Info("a part of a revision is retired", "object", object.GetName(), "type",
		fmt.Sprintf("%T", object), "why", why)
	r.meters.retired.Inc()
	r.tell.retired(object, why)
	return nil
}
