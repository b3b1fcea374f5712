package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// maxReplacements is how many Machines of a set may be replaced before a newer Machine accepts the key. If the template
// of the set's hosts contains another key, more replacements would not help.
const maxReplacements = 3

// attempts contains the Machines that were replaced because of the current key, by set. If an administrator deletes the
// ConfigMap with this data, the operator replaces Machines again.
type attempts struct {
	hash   string
	all    []dueMachine
	stored *corev1.ConfigMap
	// isPublished reports that the user data of new Machines contains the current key.
	isPublished bool
}

// attempt is the entry of one set.
type attempt struct {
	Hash     string      `json:"publicKeyHash"`
	Machines []types.UID `json:"machines"`
	// Newest is the latest creation time of these Machines. It is from the API server, like all dates of Machines.
	Newest metav1.Time `json:"newest"`
}

// readAttempts reads the ConfigMap from the API server. The parameter `all` contains the Machines with an instance.
func (r *Reconciler) readAttempts(ctx context.Context, hash string, all []dueMachine) (*attempts, error) {
	stored := &corev1.ConfigMap{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: contract.ReplacementsConfigMap},
		stored)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", contract.ReplacementsConfigMap, err)
	}
	isPublished, err := r.options.UserData(ctx, hash)
	return &attempts{hash: hash, all: all, stored: stored, isPublished: isPublished}, err
}

// The method `of` returns the entry of a set. The entry is empty if it is about another key, or if a Machine that is
// newer than the replaced Machines accepts the key.
func (a *attempts) of(set types.UID) attempt {
	tried := attempt{}
	if json.Unmarshal([]byte(a.stored.Data[string(set)]), &tried) != nil || tried.Hash != a.hash ||
		slices.ContainsFunc(a.all, func(one dueMachine) bool {
			owner := one.machine.Owner
			return owner != nil && owner.UID == set && one.instance.Status.PublicKeyHash == a.hash &&
				one.machine.CreatedAt.After(tried.Newest.Time)
		}) {
		return attempt{Hash: a.hash}
	}
	return tried
}

// isIneffective reports whether maxReplacements Machines of a set were replaced. A recorded Machine that still exists
// doesn't count, because its deletion failed or never began.
func (a *attempts) isIneffective(set types.UID) bool {
	gone := slices.DeleteFunc(a.of(set).Machines, func(uid types.UID) bool {
		return slices.ContainsFunc(a.all, func(one dueMachine) bool {
			return one.machine.UID == uid && !one.machine.Deleting
		})
	})
	return len(gone) >= maxReplacements
}

// note adds a Machine to the entry of its set, before the deletion of the Machine. It removes entries for other keys.
func (r *Reconciler) note(ctx context.Context, attempts *attempts, m inventory.Machine) error {
	tried, wanted := attempts.of(m.Owner.UID), attempts.stored.DeepCopy()
	if slices.Contains(tried.Machines, m.UID) {
		return nil
	}
	tried.Machines = append(tried.Machines, m.UID)
	if m.CreatedAt.After(tried.Newest.Time) {
		tried.Newest = metav1.NewTime(m.CreatedAt)
	}
	text, err := json.Marshal(tried)
	if err != nil {
		return fmt.Errorf("encoding the replaced Machines: %w", err)
	}
	wanted.Data = map[string]string{string(m.Owner.UID): string(text)}
	for set, entry := range attempts.stored.Data {
		if set != string(m.Owner.UID) && len(attempts.of(types.UID(set)).Machines) > 0 {
			wanted.Data[set] = entry
		}
	}
	if wanted.Name == "" {
		wanted.Namespace, wanted.Name = r.options.Namespace, contract.ReplacementsConfigMap
		metav1.SetMetaDataLabel(&wanted.ObjectMeta, contract.ManagedByLabel, contract.OperatorServiceAccount)
		err = r.client.Create(ctx, wanted)
	} else {
		err = r.client.Update(ctx, wanted)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		return errChanged
	case err != nil:
		return fmt.Errorf("writing ConfigMap %s: %w", contract.ReplacementsConfigMap, err)
	}
	attempts.stored = wanted
	return nil
}
