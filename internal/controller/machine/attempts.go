package machine

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// maxReplacements is how many Machines of a set are replaced before one that came instead must have let
// us in. Where the template of hosts holds another key, as on platforms that have no user data,
// replacing them again and again would help nobody.
const maxReplacements = 3

// attempts counts, by set, Machines that were replaced and have not been followed by one that lets
// us in. The count is in a ConfigMap, which only this controller writes: it is read once, and again
// when somebody else changed it. Only one worker may use it.
type attempts struct {
	client    client.Client
	live      client.Reader
	namespace string
	// stored is nil until it was read; its name is empty while there is no such ConfigMap.
	stored *corev1.ConfigMap
	sets   map[types.UID]attempt
}

// attempt is what was tried for a set: with which key, which Machines were replaced, and which the
// set had before the first of them was. Only others tell whether it was in vain. Names say that
// whatever clocks say.
type attempt struct {
	Hash     string      `json:"publicKeyHash"`
	Before   []string    `json:"before"`
	Machines []types.UID `json:"machines"`
}

// load reads the count unless it is known already.
func (f *attempts) load(ctx context.Context) error {
	if f.stored != nil {
		return nil
	}
	stored := &corev1.ConfigMap{}
	err := f.live.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: contract.ReplacementsConfigMap}, stored)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", contract.ReplacementsConfigMap, err)
	}
	sets := map[types.UID]attempt{}
	for set, text := range stored.Data {
		var tried attempt
		if json.Unmarshal([]byte(text), &tried) == nil { // what is not ours counts for nothing
			sets[types.UID(set)] = tried
		}
	}
	f.stored, f.sets = stored, sets
	return nil
}

// replaced notes, before a Machine is deleted, that it refuses a key. Noting it again
// changes nothing. Sets that are gone are forgotten.
func (f *attempts) replaced(ctx context.Context, m inventory.Machine, hash string, sets []policy.Set) error {
	if m.Owner == nil {
		return nil
	}
	tried := f.sets[m.Owner.UID]
	if tried.Hash != hash {
		tried = attempt{Hash: hash, Before: namesOf(sets, m.Owner.UID)}
	}
	if slices.Contains(tried.Machines, m.UID) {
		return nil
	}
	tried.Machines = append(slices.Clone(tried.Machines), m.UID)
	changed := maps.Clone(f.sets)
	changed[m.Owner.UID] = tried
	maps.DeleteFunc(changed, func(uid types.UID, _ attempt) bool {
		return !slices.ContainsFunc(sets, func(s policy.Set) bool { return s.UID == uid })
	})
	return f.save(ctx, changed)
}

func namesOf(sets []policy.Set, uid types.UID) (names []string) {
	for _, s := range sets {
		if s.UID == uid {
			for _, host := range s.Hosts {
				names = append(names, host.Name)
			}
		}
	}
	return names
}

// accepted notes that a Machine accepts the present key. It counts for its set when it came after another was
// deleted. One that was to be deleted, and was not, is not taken for replaced any more.
func (f *attempts) accepted(ctx context.Context, m inventory.Machine) error {
	if m.Owner == nil {
		return nil
	}
	tried, ok := f.sets[m.Owner.UID]
	changed, at := maps.Clone(f.sets), slices.Index(tried.Machines, m.UID)
	switch {
	case ok && !slices.Contains(tried.Before, m.Name):
		delete(changed, m.Owner.UID)
	case at >= 0:
		tried.Machines = slices.Delete(slices.Clone(tried.Machines), at, at+1)
		changed[m.Owner.UID] = tried
	default:
		return nil
	}
	return f.save(ctx, changed)
}

// isIneffective says whether enough was tried for a set with a key, to replace this Machine of it, too.
// One that is noted already is among what was tried: its deletion was refused, or the operator ended before it.
func (f *attempts) isIneffective(set, machine types.UID, hash string) bool {
	tried := f.sets[set]
	return tried.Hash == hash && len(tried.Machines) >= maxReplacements && !slices.Contains(tried.Machines, machine)
}

// save writes the count as it was read last, or answers errChanged.
func (f *attempts) save(ctx context.Context, sets map[types.UID]attempt) error {
	stored := f.stored.DeepCopy()
	stored.Data = map[string]string{}
	for set, tried := range sets {
		text, err := json.Marshal(tried)
		if err != nil {
			return fmt.Errorf("encoding what was replaced: %w", err)
		}
		stored.Data[string(set)] = string(text)
	}
	var err error
	if stored.Name == "" {
		stored.Namespace, stored.Name = f.namespace, contract.ReplacementsConfigMap
		metav1.SetMetaDataLabel(&stored.ObjectMeta, contract.ManagedByLabel, contract.OperatorServiceAccount)
		err = f.client.Create(ctx, stored)
	} else {
		err = f.client.Update(ctx, stored)
	}
	switch {
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err):
		f.stored = nil
		return errChanged
	case err != nil:
		f.stored = nil // it may have been written
		return fmt.Errorf("writing ConfigMap %s: %w", contract.ReplacementsConfigMap, err)
	}
	f.stored, f.sets = stored, sets
	return nil
}
