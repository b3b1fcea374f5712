package instance

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

type record struct {
	*Reconciler
	instance *v1alpha1.WindowsInstance
	memory   *memory
	// saved is the instance in the API server.
	saved *v1alpha1.WindowsInstance
}

// save writes the status if it has changed. It fails if another client has changed the instance since it was read.
func (r *record) save(ctx context.Context) error {
	fit(&r.instance.Status)
	if equality.Semantic.DeepEqual(r.saved.Status, r.instance.Status) {
		return nil
	}
	patch, err := statusPatch(r.instance)
	if err != nil {
		return err
	}
	patched := r.instance.DeepCopy()
	if err = r.client.Status().Patch(ctx, patched, patch); err != nil {
		r.memory.isBehind = apierrors.IsConflict(err)
		return fmt.Errorf("saving the status: %w", vanished(err))
	}
	r.instance.ResourceVersion = patched.ResourceVersion
	r.memory.knows(patched.ResourceVersion, r.now())
	r.instance.DeepCopyInto(r.saved)
	return nil
}

// copy returns a record that can be saved while a phase changes the original instance.
func (r *record) copy() *record {
	copied := *r
	copied.instance, copied.saved = r.instance.DeepCopy(), r.saved.DeepCopy()
	return &copied
}

// statusPatch returns a patch that replaces the status of exactly this instance in exactly this version. A merge patch
// couldn't check the UID: in a patch of a status, the API server ignores all metadata except the resource version.
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
