package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	// Since is when it was given out.
	Since metav1.MicroTime `json:"since"`
	// isUsed says that the status of its instance shows that it is used.
	isUsed bool
}

// grantTimeout is for how long a place is kept for one who does not show that it uses it: what it may
// take to write the list and then to use the place, and a minute for clocks of two operators that
// differ. So long others may wait after an operator died in between.
const grantTimeout = bound + UseTimeout + time.Minute

// ledger is the list of places that were given out, as it was read. It is one object, so of two
// operators that decide at the same time only one can write what it decided.
type ledger struct {
	object *corev1.ConfigMap
	grants []Grant
}

// grantsKey is where the list is in its ConfigMap.
const grantsKey = "grants"

// read reads the list past the cache. What is not ours counts for nothing: places that are used are
// in the statuses of instances, too.
func (g *Gate) read(ctx context.Context) (ledger, error) {
	l := ledger{object: &corev1.ConfigMap{}}
	key := types.NamespacedName{Namespace: g.Namespace, Name: contract.PlacesConfigMap}
	if err := g.Live.Get(ctx, key, l.object); client.IgnoreNotFound(err) != nil {
		return ledger{}, fmt.Errorf("reading ConfigMap %s: %w", key.Name, err)
	}
	if json.Unmarshal([]byte(l.object.Data[grantsKey]), &l.grants) != nil {
		l.grants = nil
	}
	return l, nil
}

// write replaces the list, unless somebody else wrote it since it was read.
func (g *Gate) write(ctx context.Context, l ledger) error {
	text, err := json.Marshal(l.grants)
	if err != nil {
		return fmt.Errorf("encoding places: %w", err)
	}
	object := l.object.DeepCopy()
	object.Data = map[string]string{grantsKey: string(text)}
	if object.Name == "" {
		object.Namespace, object.Name = g.Namespace, contract.PlacesConfigMap
		metav1.SetMetaDataLabel(&object.ObjectMeta, contract.ManagedByLabel, contract.OperatorServiceAccount)
		err = g.Writer.Create(ctx, object)
	} else {
		err = g.Writer.Update(ctx, object)
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", contract.PlacesConfigMap, err)
	}
	return nil
}
