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

// KindStays reports whether the CRD of a missing object is still the CRD that existed when the object was created. If
// KindStays returns true, a user deleted the object itself. If it returns false, the object was deleted together with
// its CRD: the CRD doesn't exist, is being deleted, or was created after the object. crd is the name of the CRD, and
// created is the time when the object was created. live must not read from a cache. If the operator may not read the
// CRD, the error is a *contract.Problem.
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
