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

// retirer takes away the revisions that nobody uses.
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

// Reconcile looks at all revisions but the current one. The time since when a revision is unused
// stands in its annotations, so that a restart of the operator does not begin anew. A repeated call
// writes nothing unless something changed.
func (r *retirer) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	current, _, ok := r.source.Published()
	if !ok {
		return ctrl.Result{}, nil // the source tells when there is one
	}
	used, err := r.used(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	list := &corev1.ConfigMapList{}
	if err = r.client.List(ctx, list, client.InNamespace(r.namespace)); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing ConfigMaps: %w", err)
	}
	var next time.Duration
	secretDigests := map[string]string{}
	for i := range list.Items {
		c := &list.Items[i]
		revision, ours := strings.CutPrefix(c.Name, contract.ServicesConfigMapPrefix)
		if !ours || !isPublished(c) || !c.DeletionTimestamp.IsZero() {
			continue
		}
		what := sentence(c, revision == current.Revision, used[revision], r.now(), r.grace)
		left, actErr := r.act(ctx, c, what)
		if actErr != nil {
			return ctrl.Result{}, actErr
		}
		next = policy.Soonest(next, left)
		if isGenuine(c) && !what.remove {
			secretDigests[c.Name] = c.Data[contract.KeyConfidential]
		}
	}
	left, err := r.retireSecrets(ctx, current, secretDigests)
	return ctrl.Result{RequeueAfter: policy.Soonest(next, left)}, err
}

// used are the revisions that a Node runs or is to run, whose payload it fetches, that it may go
// back to, or that a joining host was given.
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

// fate is what becomes of a revision.
type fate struct {
	// remove it now, with the reason for it; or mark it as unused from now on, or unmark it; or
	// leave it as it is.
	remove, mark, unmark bool
	why                  string
	// left of the grace, after which to look again.
	left time.Duration
}

// sentence decides about one revision.
func sentence(c *corev1.ConfigMap, current, used bool, now time.Time, grace time.Duration) fate {
	marked, err := time.Parse(time.RFC3339, c.Annotations[unusedAnnotation])
	isMarked := err == nil && !marked.After(now)
	_, hasMark := c.Annotations[unusedAnnotation]
	switch {
	case !current && !isGenuine(c):
		return fate{remove: true, why: "its content is not what its name says"}
	case current || used:
		return fate{unmark: hasMark}
	case !isMarked:
		return fate{mark: true, left: grace}
	case now.Sub(marked) >= grace:
		return fate{remove: true, why: "no node uses it any more"}
	}
	return fate{left: grace - now.Sub(marked)}
}

func (r *retirer) act(ctx context.Context, c *corev1.ConfigMap, f fate) (left time.Duration, err error) {
	log := logf.FromContext(ctx).WithValues("configMap", c.Name)
	switch {
	case f.remove:
		err = r.client.Delete(ctx, c, exactly(c))
		if err == nil {
			log.Info("services manifest retired", "why", f.why)
			r.meters.retired.Inc()
			r.tell.retired(c, f.why)
		}
	case f.mark, f.unmark:
		changed := c.DeepCopy()
		if f.mark {
			if changed.Annotations == nil {
				changed.Annotations = map[string]string{}
			}
			changed.Annotations[unusedAnnotation] = r.now().UTC().Format(time.RFC3339)
		} else {
			delete(changed.Annotations, unusedAnnotation)
		}
		err = r.client.Patch(ctx, changed, client.MergeFrom(c))
		log.V(1).Info("services manifest marked", "unused", f.mark)
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return f.left, nil // its event brings us back
	}
	if err != nil {
		return 0, fmt.Errorf("retiring ConfigMap %s: %w", c.Name, err)
	}
	return f.left, nil
}
