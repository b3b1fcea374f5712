package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// KindStays reports whether the CRD of a missing object is still the CRD from the time when the object was created. If
// so, a user deleted the object. If not, the object vanished with its CRD, which is missing, being deleted, or newer.
// The reader `live` must not use a cache. If the operator may not read the CRD, the error is a *contract.Problem.
func KindStays(ctx context.Context, live client.Reader, crd string, created time.Time) (bool, error) {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinition"})
	err := live.Get(ctx, client.ObjectKey{Name: crd}, object)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case apierrors.IsForbidden(err):
		return false, incomplete("the CustomResourceDefinition %s may not be read: apply the operator's manifests "+
			"again to restore its rights", crd)
	case err != nil:
		return false, fmt.Errorf("reading the CustomResourceDefinition %s: %w", crd, err)
	}
	return object.DeletionTimestamp.IsZero() && !object.CreationTimestamp.After(created), nil
}
