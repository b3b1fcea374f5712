package source

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// Reasons of events. Users rely on these reasons. eventRejected is about an entry that doesn't become a node.
// eventTeardown is about hosts that are removed.
const (
	eventRejected = "InstanceSetupFailure"
	eventTeardown = "InstanceTeardown"
)

// grace returns the rest of absenceGrace, or 0. When the grace begins, an event reports how many hosts will be removed.
func (r *Reconciler) grace(ctx context.Context, instances []v1alpha1.WindowsInstance) time.Duration {
	now := r.now()
	if since := r.absentSince.Load(); since != nil && !since.After(now) {
		return max(0, absenceGrace-now.Sub(*since))
	}
	r.absentSince.Store(&now)
	hosts := 0
	for _, instance := range instances {
		if ours(instance) && instance.DeletionTimestamp.IsZero() {
			hosts++
		}
	}
	if hosts > 0 {
		problem := contract.NewProblem(contract.ReasonConfigMapMissing,
			"%s will leave in %s unless %s is created again", contract.Count(hosts, "host"), absenceGrace,
			contract.InstancesConfigMap)
		logf.FromContext(ctx).Info("windows-instances is absent", "hosts", hosts, "grace", absenceGrace)
		r.problems.Set(controllerName, []*contract.Problem{problem})
		list := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: r.namespace,
			Name: contract.InstancesConfigMap}
		r.events.Eventf(list, nil, corev1.EventTypeWarning, eventTeardown, "Read", "%v. %s", problem,
			problem.Reason.Fix())
	}
	return absenceGrace
}

// tellRejected sends one event about the list for each entry that doesn't become an instance. The event's reference
// contains the field path of the entry. Otherwise, Kubernetes would count all entries with the same reason as one
// event, with the note of the first entry.
func (r *Reconciler) tellRejected(list *corev1.ConfigMap, rejected []inventory.Rejected) {
	if list.UID == "" {
		return // the ConfigMap doesn't exist
	}
	notes := make([]*contract.Problem, len(rejected))
	for i, one := range rejected {
		notes[i] = contract.NewProblem(one.Problem.Reason, "%s %s %s", list.UID, one.Key, one.Problem.Detail)
	}
	fresh := r.reported.Set(controllerName, notes)
	for i, one := range rejected {
		if slices.Contains(fresh, notes[i]) {
			entry := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: list.Namespace,
				Name: list.Name, UID: list.UID, FieldPath: fmt.Sprintf("data{%s}", one.Key)}
			r.events.Eventf(entry, nil, corev1.EventTypeWarning, eventRejected, "Read", "%v. %s", one.Problem,
				one.Problem.Reason.Fix())
		}
	}
}
