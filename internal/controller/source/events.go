package source

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// eventRejected is the contract's reason for an entry that does not become a node.
const eventRejected = "InstanceSetupFailure"

// eventTeardown is the contract's reason for hosts that leave.
const eventTeardown = "InstanceTeardown"

// tellAbsent says, when the grace begins, that the list is absent and whose hosts will leave.
func (r *Reconciler) tellAbsent(ctx context.Context, instances []v1alpha1.WindowsInstance, began bool) {
	hosts := 0
	for _, instance := range instances {
		if ours(instance) && instance.DeletionTimestamp.IsZero() {
			hosts++
		}
	}
	if !began || hosts == 0 {
		return
	}
	reason := contract.ReasonConfigMapMissing
	logf.FromContext(ctx).Info("windows-instances is absent", "hosts", hosts, "grace", absenceGrace)
	list := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: r.namespace,
		Name: contract.InstancesConfigMap}
	r.events.Eventf(list, nil, corev1.EventTypeWarning, eventTeardown, "Read",
		"its %s will leave in %s unless it is created again (%s %s). %s", contract.Count(hosts, "host"), absenceGrace,
		reason.Code(), reason, reason.Fix())
}

// told is what was last said about each entry of a list, so that it is said once, and again only
// when it is another list or trouble.
type told struct {
	mu    sync.Mutex
	list  types.UID
	notes map[string]string
}

// news gives the notes, by key, that were not told yet, and takes all for told.
func (t *told) news(list types.UID, notes map[string]string) map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	fresh := map[string]string{}
	for key, note := range notes {
		if list != t.list || t.notes[key] != note {
			fresh[key] = note
		}
	}
	t.list, t.notes = list, notes
	return fresh
}

// tellRejected says at the list which entries become no instances. Each event is about its entry:
// events about the same object with the same reason are counted as one, and only the first one's
// note is kept.
func (r *Reconciler) tellRejected(list *corev1.ConfigMap, rejected []inventory.Rejected) {
	if list.UID == "" {
		return // there is none to say it at
	}
	notes := map[string]string{}
	for _, one := range rejected {
		notes[one.Key] = fmt.Sprintf("%v. %s", one.Problem, one.Problem.Reason.Fix())
	}
	for key, note := range r.told.news(list.UID, notes) {
		entry := &corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: list.Namespace, Name: list.Name, UID: list.UID,
			FieldPath: "data{" + key + "}",
		}
		r.events.Eventf(entry, nil, corev1.EventTypeWarning, eventRejected, "Read", "%s", note)
	}
}
