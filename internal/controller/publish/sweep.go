package publish

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// sweep deletes forged objects of revisions at once, and revisions that nothing has used for the grace period. The
// grace period starts again when the operator restarts. `next` is the time until the next sweep, or 0.
func (p *publisher) sweep(ctx context.Context) (next time.Duration, err error) {
	current, _, ok := p.source.Published()
	if !ok {
		return 0, nil
	}
	used, err := p.used(ctx)
	if err != nil {
		return 0, err
	}
	all, err := revisions(ctx, p.client, p.Namespace)
	if err != nil {
		return 0, err
	}
	delete(all, current.ConfigMapName())
	since := map[string]time.Time{}
	for name, found := range all {
		why, left := "", p.Grace
		if !used[strings.TrimPrefix(name, contract.ServicesConfigMapPrefix)] {
			since[name] = p.Now()
			if before, known := p.unused[name]; known {
				since[name] = before
			}
			if left -= p.Now().Sub(since[name]); left <= 0 {
				why = "no node uses it"
			}
		}
		next = policy.Soonest(next, max(0, left))
		ofManifest, ofSecret := why, why
		switch {
		case found.manifest != nil && !found.isGenuine():
			ofManifest = "its content is not what its name says"
		case found.manifest != nil && !found.isComplete():
			ofSecret = "its content is not what its manifest says"
		}
		if found.manifest != nil {
			err = p.retire(ctx, found.manifest, ofManifest)
		}
		if found.secret != nil && err == nil {
			err = p.retire(ctx, found.secret, ofSecret)
		}
		if err != nil {
			return 0, err
		}
	}
	p.unused = since
	return next, nil
}

// The method `used` returns the revisions to keep: the revisions that Nodes have, will have, have staged or may roll
// back to, and the revisions of hosts that are joining.
func (p *publisher) used(ctx context.Context) (map[string]bool, error) {
	all := map[string]bool{}
	nodes, instances := &corev1.NodeList{}, &v1alpha1.WindowsInstanceList{}
	if err := p.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, key := range []string{contract.RevisionAnnotation, contract.DesiredRevisionAnnotation,
			contract.StageAnnotation} {
			all[nodes.Items[i].Annotations[key]] = true
		}
	}
	if err := p.client.List(ctx, instances, client.InNamespace(p.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	for i := range instances.Items {
		status := &instances.Items[i].Status
		all[status.Revision], all[status.DesiredRevision], all[status.HeldRevision] = true, true, true
		if update := status.Upgrade(); update != nil {
			all[update.Revision] = true
		}
	}
	return all, nil
}

// retire deletes a ConfigMap or Secret of the operator. If the parameter `why` is empty, retire does nothing.
func (p *publisher) retire(ctx context.Context, object client.Object, why string) error {
	if why == "" || !isOurs(object) || !object.GetDeletionTimestamp().IsZero() { // a finalizer may delay the deletion
		return nil
	}
	err := p.client.Delete(ctx, object, exactly(object))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // an event about the object triggers the next reconcile
	}
	if err != nil {
		return fmt.Errorf("retiring %T %s: %w", object, object.GetName(), err)
	}
	logf.FromContext(ctx).Info("a part of a revision is retired", "object", object.GetName(), "type",
		fmt.Sprintf("%T", object), "why", why)
	p.meters.retired.Inc()
	p.tell.retired(object, why)
	return nil
}
