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

// placesKey is the key of the list in its ConfigMap.
const placesKey = "places"

// list is the list of slots with its ConfigMap. The ConfigMap has no name if it doesn't exist.
type list struct {
	object *corev1.ConfigMap
	places []policy.Place
}

// read reads the list from the API server. It omits an entry that can't be read, because an instance that uses such
// a slot also records it in its status.
func (r *Rollout) read(ctx context.Context) (list, error) {
	l := list{object: &corev1.ConfigMap{}}
	key := types.NamespacedName{Namespace: r.options.Namespace, Name: contract.PlacesConfigMap}
	if err := r.options.Live.Get(ctx, key, l.object); client.IgnoreNotFound(err) != nil {
		return list{}, fmt.Errorf("reading ConfigMap %s: %w", key.Name, err)
	}
	var entries []json.RawMessage
	if json.Unmarshal([]byte(l.object.Data[placesKey]), &entries) != nil {
		return l, nil //nolint:nilerr // the list is written again
	}
	for _, text := range entries {
		var one policy.Place
		if json.Unmarshal(text, &one) == nil {
			l.places = append(l.places, one)
		}
	}
	return l, nil
}

// write replaces the list. If the list was written since it was read, write fails.
func (r *Rollout) write(ctx context.Context, read list, places []policy.Place) error {
	r.last = nil // also if the write fails
	text, err := json.Marshal(places)
	if err != nil {
		return fmt.Errorf("encoding slots: %w", err)
	}
	object := read.object.DeepCopy()
	object.Data, object.BinaryData = map[string]string{placesKey: string(text)}, nil
	if object.Name == "" {
		object.Namespace, object.Name = r.options.Namespace, contract.PlacesConfigMap
		metav1.SetMetaDataLabel(&object.ObjectMeta, contract.ManagedByLabel, contract.OperatorServiceAccount)
		err = r.options.Writer.Create(ctx, object)
	} else {
		err = r.options.Writer.Update(ctx, object)
	}
	if apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsForbidden(err) {
		return contract.NewProblem(contract.ReasonPlacesUnwritable, "writing ConfigMap %s: %v",
			contract.PlacesConfigMap, err)
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", contract.PlacesConfigMap, err)
	}
	r.last = &list{object: object, places: places}
	return nil
}
