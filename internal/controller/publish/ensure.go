package publish

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/contract"
)

// ensure creates an object in the operator's namespace if it doesn't exist. The function `fill` sets the desired
// content of the existing or new object. If this changes the object, ensure updates it. Exception: ensure replaces an
// object of a revision, because such objects are immutable.
func ensure[T any, P interface {
	*T
	client.Object
}](ctx context.Context, p *publisher, name string, fill func(P)) error {
	newObject := func() P {
		object := P(new(T))
		object.SetNamespace(p.Namespace)
		object.SetName(name)
		return object
	}
	object, how := newObject(), "create"
	err := p.client.Get(ctx, client.ObjectKeyFromObject(object), object)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading %T %s: %w", object, name, err)
	}
	before := object.DeepCopyObject()
	fill(object)
	switch {
	case err != nil:
		err = p.client.Create(ctx, object)
	case !object.GetDeletionTimestamp().IsZero():
		return fmt.Errorf("publishing %T %s: it is being deleted since %s, and has the finalizers %q", object, name,
			object.GetDeletionTimestamp().UTC().Format(time.RFC3339), object.GetFinalizers())
	case equality.Semantic.DeepEqual(before, object):
		return nil
	case !isRevisionName(name):
		how, err = "update", p.client.Update(ctx, object)
	default:
		how = "replace"
		if err = client.IgnoreNotFound(p.client.Delete(ctx, object, exactly(object))); err == nil {
			object = newObject()
			fill(object)
			err = p.client.Create(ctx, object)
		}
	}
	if err != nil {
		return fmt.Errorf("publishing %T %s (%s): %w", object, name, how, err)
	}
	logf.FromContext(ctx).Info("published", "object", name, "type", fmt.Sprintf("%T", object), "how", how)
	if isRevisionName(name) {
		p.meters.published.WithLabelValues(how).Inc()
		p.tell.published(object, how)
	}
	return nil
}

// The function `exactly` returns preconditions: a deletion fails if the object was changed after it was read.
func exactly(o client.Object) client.Preconditions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}

// markOurs sets the label of objects that this operator created.
func markOurs(object *metav1.ObjectMeta) {
	metav1.SetMetaDataLabel(object, contract.ManagedByLabel, contract.OperatorServiceAccount)
}

func isOurs(o client.Object) bool {
	return o.GetLabels()[contract.ManagedByLabel] == contract.OperatorServiceAccount
}
