package rollout

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const slotsKey = "places"

// list is the list of slots and its ConfigMap. If the ConfigMap doesn't exist, object has no name.
type list struct {
	object *corev1.ConfigMap
	slots  []policy.Slot
}

// read reads the list from the API server, without entries that can't be parsed. This loses no slot in use, because an
// instance that uses its slot also records the slot in its own status.
func (r *Rollout) read(ctx context.Context) (list, error) {
	l := list{object: &corev1.ConfigMap{}}
	key := types.NamespacedName{Namespace: r.options.Namespace, Name: contract.SlotsConfigMap}
	if err := r.options.Live.Get(ctx, key, l.object); client.IgnoreNotFound(err) != nil {
		return list{}, fmt.Errorf("reading ConfigMap %s: %w", key.Name, err)
	}
	var entries []json.RawMessage
	if json.Unmarshal([]byte(l.object.Data[slotsKey]), &entries) != nil {
		return l, nil //nolint:nilerr // the next decision writes the list again
	}
	for _, text := range entries {
		var one policy.Slot
		if json.Unmarshal(text, &one) == nil {
			l.slots = append(l.slots, one)
		}
	}
	return l, nil
}

// write replaces the list. It fails if another client has written the list since it was read.
func (r *Rollout) write(ctx context.Context, read list, slots []policy.Slot) error {
	r.last = nil // after a failed write, the list is unknown
	text, err := json.Marshal(slots)
	if err != nil {
		return fmt.Errorf("encoding slots: %w", err)
	}
	object := read.object.DeepCopy()
	object.Data, object.BinaryData = map[string]string{slotsKey: string(text)}, nil
	if object.Name == "" {
		object.Namespace, object.Name = r.options.Namespace, contract.SlotsConfigMap
		metav1.SetMetaDataLabel(&object.ObjectMeta, contract.ManagedByLabel, contract.OperatorServiceAccount)
		err = r.options.Writer.Create(ctx, object)
	} else {
		err = r.options.Writer.Update(ctx, object)
	}
	if apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsForbidden(err) {
		return contract.NewProblem(contract.ReasonSlotsUnwritable, "writing ConfigMap %s: %v",
			contract.SlotsConfigMap, err)
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", contract.SlotsConfigMap, err)
	}
	r.last = &list{object: object, slots: slots}
	return nil
}
