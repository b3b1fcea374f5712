package publish

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// unusedAnnotation says since when nothing uses a revision.
const unusedAnnotation = contract.Prefix + "unused-since"

// retirer deletes the revisions that nothing uses.
type retirer struct {
	client    client.Client
	source    *Source
	tell      recorder
	meters    *meters
	namespace string
	grace     time.Duration
	now       func() time.Time
}

var _ reconcile.Reconciler = (*retirer)(nil)

// Reconcile looks at all revisions that the operator published. An annotation says since when a revision is unused, so
// the grace period survives a restart of the operator. A repeated call writes nothing unless something changed.
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
	var next time.Duration
	for name, found := range all {
		id, isKept := strings.TrimPrefix(name, contract.ServicesConfigMapPrefix), found.isGenuine()
		if c := found.manifest; c != nil && isOurs(c) {
			f := sentence(found, id == current.Revision, used[id], r.now(), r.grace)
			if err = r.act(ctx, c, f); err != nil {
				return ctrl.Result{}, err
			}
			next, isKept = policy.Soonest(next, f.left), isKept && !f.remove
		}
		if s := found.secret; s != nil && isOurs(s) && id != current.Revision {
			f := r.secretFate(found, isKept)
			if err = r.act(ctx, s, f); err != nil {
				return ctrl.Result{}, err
			}
			next = policy.Soonest(next, f.left)
		}
	}
	return ctrl.Result{RequeueAfter: next}, nil
}

// used are the revisions that Nodes run, will run, prefetch or may be rolled back to, and those that joining hosts got.
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

// fate is what happens to an object of a revision. The zero value leaves it as it is.
type fate struct {
	// remove deletes it, and why is the reason. mark marks it as unused from now on, and unmark removes the mark.
	remove, mark, unmark bool
	why                  string
	// left is what is left of the grace period.
	left time.Duration
}

// sentence decides about the manifest of a revision.
func sentence(r revision, current, used bool, now time.Time, grace time.Duration) fate {
	mark, hasMark := r.manifest.Annotations[unusedAnnotation]
	since, err := time.Parse(time.RFC3339, mark)
	switch {
	case !current && !r.isGenuine():
		return fate{remove: true, why: "its content is not what its name says"}
	case current || used:
		return fate{unmark: hasMark}
	case err != nil || since.After(now):
		return fate{mark: true, left: grace}
	case now.Sub(since) >= grace:
		return fate{remove: true, why: "no node uses it any more"}
	}
	return fate{left: grace - now.Sub(since)}
}

// secretFate decides about the Secret of a revision. A Secret is published before its manifest, so a Secret without a
// manifest is kept for the grace period.
func (r *retirer) secretFate(found revision, hasManifest bool) fate {
	left := r.grace - r.now().Sub(found.secret.CreationTimestamp.Time)
	switch {
	case hasManifest && found.isComplete():
		return fate{}
	case hasManifest:
		return fate{remove: true, why: "its content is not what its manifest says"}
	case left > 0:
		return fate{left: left}
	}
	return fate{remove: true, why: "its manifest is gone"}
}

// act carries out what was decided about a ConfigMap or Secret. Only ConfigMaps are marked.
func (r *retirer) act(ctx context.Context, object client.Object, f fate) (err error) {
	log := logf.FromContext(ctx).WithValues("object", object.GetName(), "type", fmt.Sprintf("%T", object))
	switch {
	case !object.GetDeletionTimestamp().IsZero(): // a finalizer keeps it
	case f.remove:
		if err = r.client.Delete(ctx, object, exactly(object)); err == nil {
			log.Info("a part of a revision is retired", "why", f.why)
			r.meters.retired.Inc()
			r.tell.retired(object, f.why)
		}
	case f.mark, f.unmark:
		mark := "null"
		if f.mark {
			mark = strconv.Quote(r.now().UTC().Format(time.RFC3339))
		}
		err = r.client.Patch(ctx, object, client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, unusedAnnotation, mark)))
		log.V(1).Info("a revision is marked", "unused", f.mark)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // its event brings us back
	}
	if err != nil {
		return fmt.Errorf("retiring %T %s: %w", object, object.GetName(), err)
	}
	return nil
}
