package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// crds answers GET requests for a CRD.
type crds struct {
	client.Reader
	meta metav1.ObjectMeta
	err  error
}

func (c crds) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if p, ok := o.(*metav1.PartialObjectMetadata); ok && c.err == nil {
		p.ObjectMeta = c.meta
	}
	return c.err
}

func TestA80_AnObjectThatVanishesWithItsKindWasNotDeletedByItself(t *testing.T) {
	t.Parallel()
	created := metav1.NewTime(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	earlier, later := metav1.NewTime(created.Add(-time.Hour)), metav1.NewTime(created.Add(time.Hour))
	resource := schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	for name, test := range map[string]struct {
		crds          crds
		stays         bool
		problem, fail bool
	}{
		"the kind is older than the object": {crds: crds{meta: metav1.ObjectMeta{CreationTimestamp: earlier}}, stays: true},
		"both were created at once":         {crds: crds{meta: metav1.ObjectMeta{CreationTimestamp: created}}, stays: true},
		"the kind was created again":        {crds: crds{meta: metav1.ObjectMeta{CreationTimestamp: later}}},
		"the kind is being deleted": {crds: crds{meta: metav1.ObjectMeta{CreationTimestamp: earlier,
			DeletionTimestamp: &later}}},
		"the kind is gone":     {crds: crds{err: apierrors.NewNotFound(resource, "x")}},
		"it may not be read":   {crds: crds{err: apierrors.NewForbidden(resource, "x", nil)}, problem: true, fail: true},
		"the server times out": {crds: crds{err: errors.New("timed out")}, fail: true},
	} {
		stays, err := cluster.KindStays(t.Context(), test.crds, "x", created.Time)
		if _, problem := contract.AsProblem(err); stays != test.stays || (err != nil) != test.fail || problem != test.problem {
			t.Errorf("%s: the instance stays: %t, %v", name, stays, err)
		}
	}
}
