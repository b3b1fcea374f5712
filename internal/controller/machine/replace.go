package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// recheck is how often the operator checks the Machines to replace. Some of them can be replaced only after some time,
// and no event reports that this time is over.
const recheck = 15 * time.Second

// replaceAll deletes Machines whose hosts refuse the current key, so that their sets create replacements. `again` is
// the time until the next check, or 0.
func (r *Reconciler) replaceAll(ctx context.Context, v view) (again time.Duration, err error) {
	hash, err := r.keyHash(ctx, r.options.Keys)
	if err != nil {
		return 0, err
	}
	all := joined(v)
	due, after := r.due(all, hash)
	attempts := &attempts{}
	if len(due) > 0 {
		// The key in the cache may be outdated. Machines that accept the current key must not be deleted.
		if present, err := r.keyHash(ctx, r.options.LiveKeys); err != nil || present != hash {
			return staleRetry, err
		}
		if attempts, err = r.readAttempts(ctx, hash, all); err != nil {
			return 0, err
		}
	}
	again, err = r.decideAll(ctx, due, attempts)
	return policy.Soonest(after, again), err
}

// decideAll lets the rollout decide about all Machines to replace, and carries out its decisions. If there is no
// Machine to replace and no Machine has a slot, `again` is 0.
func (r *Reconciler) decideAll(ctx context.Context, due []dueMachine,
	attempts *attempts) (again time.Duration, err error) {
	candidates := make([]policy.ReplaceCandidate, len(due))
	for i := range due {
		candidates[i] = r.candidate(due[i], attempts)
	}
	decision, err := r.options.Rollout.Replace(ctx, candidates)
	if err != nil {
		return 0, err
	}
	var errs []error
	var findings []finding
	for _, one := range due {
		switch decided := decision.Machines[one.machine.Name]; decided.Action {
		case policy.ActReplace:
			errs = append(errs, r.replace(ctx, one, attempts))
		case policy.ActWait:
			findings = append(findings, finding{machine: one.machine,
				problem: contract.NewProblem(decided.Reason, "%s", decided.Message)})
		case policy.ActAsk:
			errs = append(errs, r.ask(ctx, one.instance))
		}
	}
	r.restricted.update(findings, r.options.Now(), r.reporter(eventDeletionRestricted, "Replace"))
	if len(due) > 0 || slices.ContainsFunc(decision.Slots, func(p policy.Slot) bool { return p.Machine != "" }) {
		again = recheck
	}
	return again, errors.Join(errs...)
}

// keyHash returns the hash of the current key. If there is no usable key, the hash is empty: no Machine is replaced.
func (r *Reconciler) keyHash(ctx context.Context, keys credential.Keys) (string, error) {
	key, err := keys.PrivateKey(ctx)
	if _, unusable := contract.AsProblem(err); unusable {
		return "", nil
	}
	return key.Hash, err
}

// dueMachine is a Machine with its instance, both from the cache. If cause is empty, the Machine is not replaced.
type dueMachine struct {
	machine  inventory.Machine
	instance *v1alpha1.WindowsInstance
	cause    policy.ReplaceCause
}

// The method `due` returns the Machines to replace, sorted by cause and then by age. `after` is the time until another
// Machine must be replaced, or 0.
func (r *Reconciler) due(all []dueMachine, hash string) (due []dueMachine, after time.Duration) {
	if hash == "" {
		return nil, 0
	}
	for _, one := range all {
		cause, wait := policy.WhyReplace(one.instance, hash, r.options.Now(), r.options.RefusalTimeout)
		if cause != "" && !one.machine.Deleting {
			one.cause = cause
			due = append(due, one)
		}
		after = policy.Soonest(after, max(wait, 0))
	}
	slices.SortFunc(due, func(a, b dueMachine) int {
		return cmp.Or(strings.Compare(string(b.cause), string(a.cause)),
			a.machine.CreatedAt.Compare(b.machine.CreatedAt), strings.Compare(a.machine.Name, b.machine.Name))
	})
	return due, after
}

// The function `joined` returns all Machines that have an instance.
func joined(v view) (all []dueMachine) {
	byName := map[string]*v1alpha1.WindowsInstance{}
	for i := range v.instances {
		byName[v.instances[i].Name] = &v.instances[i]
	}
	for _, m := range v.machines {
		if instance := byName[m.Name]; instance != nil && isOf(instance, m) {
			all = append(all, dueMachine{machine: m, instance: instance})
		}
	}
	return all
}

// askAgainAfter is how long the operator waits for the result of a try of the key before it requests another try.
const askAgainAfter = time.Minute

// ask requests a try of the key from the instance controller. The result of the try triggers the next reconcile.
func (r *Reconciler) ask(ctx context.Context, instance *v1alpha1.WindowsInstance) error {
	now := r.options.Now()
	requested, err := time.Parse(time.RFC3339, instance.Annotations[contract.TryKeyAnnotation])
	if err == nil && now.Sub(requested).Abs() < askAgainAfter {
		return nil
	}
	wanted := instance.DeepCopy()
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, contract.TryKeyAnnotation, now.UTC().Format(time.RFC3339))
	return wrap("asking the host of instance "+instance.Name,
		client.IgnoreNotFound(r.client.Patch(ctx, wanted, client.MergeFrom(instance))))
}

// candidate describes a Machine to replace. If the status of the instance was lost, only the Machine refers to the
// Node.
func (r *Reconciler) candidate(due dueMachine, attempts *attempts) policy.ReplaceCandidate {
	m := due.machine
	c := policy.ReplaceCandidate{Name: m.Name, Cause: due.cause, CreatedAt: m.CreatedAt,
		Node:    cmp.Or(due.instance.Status.NodeName, m.NodeRef),
		Ignored: m.Ignored, ManagedBy: m.ManagedBy, Paused: due.instance.Spec.Paused,
		Stale:   policy.IsRefusalStale(due.instance, r.options.Now()),
		Unready: !attempts.isPublished}
	if m.Owner != nil && m.Owner.Kind == ownerKind {
		c.Set, c.Ineffective = m.Owner.UID, attempts.isIneffective(m.Owner.UID)
	}
	return c
}

// replace deletes a Machine that has a slot, unless the Machine or its instance has changed since the decision. If the
// Machine certainly wasn't deleted, replace releases the slot. If it is unknown whether it was deleted, the Machine
// keeps the slot, and the deletion is retried.
func (r *Reconciler) replace(ctx context.Context, due dueMachine, attempts *attempts) error {
	err := r.deleteMachine(ctx, due, attempts)
	if errors.Is(err, errChanged) || isRefused(err) {
		err = errors.Join(err, r.options.Rollout.Withdraw(ctx, due.machine.Name))
	}
	if errors.Is(err, errChanged) {
		return nil // the next reconcile decides again
	}
	return err
}

// isRefused reports whether the API server certainly did not execute a write that failed with err.
func isRefused(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) &&
		(status.Status().Code < http.StatusInternalServerError || apierrors.IsServiceUnavailable(err))
}

// deleteMachine reads the Machine and its instance from the API server. If there is still a reason to replace the
// Machine, deleteMachine deletes exactly this Machine.
func (r *Reconciler) deleteMachine(ctx context.Context, due dueMachine, attempts *attempts) error {
	m, instance := &machinev1beta1.Machine{}, &v1alpha1.WindowsInstance{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: due.machine.Namespace, Name: due.machine.Name}, m)
	if err == nil {
		err = r.live.Get(ctx, client.ObjectKeyFromObject(due.instance), instance)
	}
	if apierrors.IsNotFound(err) {
		return errChanged
	}
	if err != nil {
		return wrap("reading Machine "+due.machine.Name, err)
	}
	now := fromOpenShift(m)
	cause, _ := policy.WhyReplace(instance, attempts.hash, r.options.Now(), r.options.RefusalTimeout)
	if now.UID != due.machine.UID || now.Deleting || now.Ignored || cause == "" || instance.Spec.Paused ||
		policy.IsRefusalStale(instance, r.options.Now()) {
		return errChanged
	}
	if err = r.note(ctx, attempts, due.machine); err != nil {
		return err
	}
	err = r.client.Delete(ctx, m, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errChanged
	}
	if err != nil {
		r.tellFailed(due.machine, due.cause, err)
		return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
	}
	r.tellDeleted(due.machine, due.cause)
	logf.FromContext(ctx).Info("machine deleted, its set makes another", "machine", m.Name, "cause", due.cause)
	return nil
}
