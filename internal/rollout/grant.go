package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Grant is a place in the rollout budget that was given out.
type Grant struct {
	// Name of who has it: the UID of an instance, or a Machine's.
	Name string `json:"name"`
	// Node that is disrupted; empty when there is none.
	Node string `json:"node,omitempty"`
	// Machine that is to be deleted; empty for an instance.
	Machine string `json:"machine,omitempty"`
	// Version is that of its instance, or of its Machine's, under which use of it may be written. Once
	// the instance has another one the place is void, however long such a write is on its way.
	Version string `json:"version"`
	// Since is when it was given out.
	Since metav1.MicroTime `json:"since"`
	// isUsed says that its instance shows that it is used.
	isUsed bool
}

// grantTimeout is for how long a place is kept for one who neither uses it nor asks again. Then it is
// revoked. So long others may wait after an operator ended in between.
const grantTimeout = 2 * time.Minute

// isUnasked says that a place was not used for so long that it is revoked.
func (one Grant) isUnasked(now time.Time) bool {
	return !one.isUsed && now.Sub(one.Since.Time).Abs() > grantTimeout
}

// at is when it was given out, in words.
func (one Grant) at() string { return one.Since.UTC().Format(time.RFC3339) }

// isInFleet says that a look at the fleet shows the place.
func (one Grant) isInFleet() bool { return one.isUsed && one.Machine == "" }

// granted is the list of places that were given out, as it was read. It is one object, so of two
// operators that decide at the same time only one can write what it decided.
type granted struct {
	object *corev1.ConfigMap
	grants []Grant
}

// grantsKey is where the list is in its ConfigMap.
const grantsKey = "grants"

// read reads the list past the cache. An entry that can't be read counts for nothing: nobody could
// say when it is void, and a place that is used shows in its instance, too.
func (g *Gate) read(ctx context.Context) (granted, error) {
	l := granted{object: &corev1.ConfigMap{}}
	key := types.NamespacedName{Namespace: g.Namespace, Name: contract.PlacesConfigMap}
	if err := g.Live.Get(ctx, key, l.object); client.IgnoreNotFound(err) != nil {
		return granted{}, fmt.Errorf("reading ConfigMap %s: %w", key.Name, err)
	}
	var entries []json.RawMessage
	if json.Unmarshal([]byte(l.object.Data[grantsKey]), &entries) != nil {
		entries = nil
	}
	for _, text := range entries {
		var one Grant
		if json.Unmarshal(text, &one) == nil {
			l.grants = append(l.grants, one)
		}
	}
	return l, nil
}

// write replaces the list, unless somebody else wrote it since it was read.
func (g *Gate) write(ctx context.Context, l granted) error {
	text, err := json.Marshal(l.grants)
	if err != nil {
		return fmt.Errorf("encoding places: %w", err)
	}
	object := l.object.DeepCopy()
	object.Data, object.BinaryData = map[string]string{grantsKey: string(text)}, nil
	if object.Name == "" {
		object.Namespace, object.Name = g.Namespace, contract.PlacesConfigMap
		metav1.SetMetaDataLabel(&object.ObjectMeta, contract.ManagedByLabel, contract.OperatorServiceAccount)
		err = g.Writer.Create(ctx, object)
	} else {
		err = g.Writer.Update(ctx, object)
	}
	if apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) || apierrors.IsForbidden(err) {
		return contract.NewProblem(contract.ReasonPlacesUnwritable, "writing ConfigMap %s: %v",
			contract.PlacesConfigMap, err)
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", contract.PlacesConfigMap, err)
	}
	return nil
}

// LateTimeout is for how long the deletion of a Machine may still arrive of which the operator heard
// nothing. API servers end a request after a minute.
const LateTimeout = 5 * time.Minute

// Use writes into an instance that its Machine's place is used, under the version that the decision
// was shown. A repeated call writes the present time.
func (g *Gate) Use(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	return g.mark(ctx, instance, contract.PlaceOfMachine+g.Now().UTC().Format(time.RFC3339))
}

// IsUsed says whether an instance's Machine uses a place, and for how long its deletion may still arrive.
// A time that can't be read, or is ahead of the clock, counts as long ago.
func (g *Gate) IsUsed(instance *v1alpha1.WindowsInstance) (is bool, left time.Duration) {
	text, is := strings.CutPrefix(instance.Annotations[contract.PlaceAnnotation], contract.PlaceOfMachine)
	since, err := time.Parse(time.RFC3339, text)
	passed := g.Now().Sub(since)
	if !is || err != nil || passed < -time.Minute || passed >= LateTimeout {
		return is, 0
	}
	return is, LateTimeout - passed
}

// Return makes a place void that was given out under the instance's version, or that its Machine
// uses: it is not used, and won't be. An instance that is another by now is a conflict: its place may
// be used, or void.
func (g *Gate) Return(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	err := client.IgnoreNotFound(g.mark(ctx, instance, "revoked at version "+instance.ResourceVersion))
	if err == nil || apierrors.IsConflict(err) {
		g.Freed()
	}
	return err
}

// mark writes an instance's annotation, unless somebody else wrote the instance meanwhile. The
// instance is the newer one then.
func (g *Gate) mark(ctx context.Context, instance *v1alpha1.WindowsInstance, value string) error {
	base := client.MergeFromWithOptions(instance.DeepCopy(), client.MergeFromWithOptimisticLock{})
	metav1.SetMetaDataAnnotation(&instance.ObjectMeta, contract.PlaceAnnotation, value)
	if err := g.Writer.Patch(ctx, instance, base); err != nil {
		return fmt.Errorf("marking instance %s: %w", instance.Name, err)
	}
	return nil
}

// IsNotWritten says that a write was certainly not done. Of any other error nobody knows.
func IsNotWritten(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) &&
		(status.Status().Code < http.StatusInternalServerError || apierrors.IsServiceUnavailable(err))
}
