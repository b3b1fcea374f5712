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
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// recheck is how often Machines that should make room are looked at again though nothing was heard
// of; time alone makes some of them due.
const recheck = 15 * time.Second

// replacer deletes Machines whose hosts refuse the present key, one decision at a time, so
// that their sets make others. All that it goes by is in the API server.
type replacer struct {
	// client reads instances through the manager's cache and deletes; machines reads Machines
	// through their own; live reads past both.
	client   client.Client
	machines client.Reader
	live     client.Reader
	rollout  *rollout.Rollout
	events   events.EventRecorder
	options  Options
	told     *told
	attempts *attempts
}

// errChanged says that a Machine is not what it was when it was decided about.
var errChanged = errors.New("the Machine changed meanwhile")

// Reconcile looks at all Machines.
func (r *replacer) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	hash, ok, err := r.keyHash(ctx, r.options.Keys)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !ok { // without a key, no Machine is known to refuse it
		_, after, err := r.decide(ctx, nil, "")
		return ctrl.Result{RequeueAfter: after}, err
	}
	due, after, err := r.due(ctx, hash)
	if errors.Is(err, errChanged) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	// A cache that lags behind must not have Machines deleted that have the right key.
	if present, _, err := r.keyHash(ctx, r.options.LiveKeys); len(due) > 0 && (err != nil || present != hash) {
		return ctrl.Result{RequeueAfter: staleRetry}, err
	}
	decisions, again, err := r.decide(ctx, due, hash)
	if err != nil {
		return ctrl.Result{}, err
	}
	var errs []error
	restricted := map[string]policy.ReplaceDecision{}
	for _, one := range due {
		name := one.machine.Name
		decision := decisions[name]
		switch decision.Action {
		case policy.ActReplace:
			errs = append(errs, r.replace(ctx, one, hash))
		case policy.ActWait, policy.ActNever:
			restricted[name] = decision
		case policy.ActAsk:
			errs = append(errs, r.ask(ctx, name))
		}
		if decision.Reason == contract.ReasonReplacementIneffective {
			r.attempts.stored = nil // the administrator may delete it
		}
	}
	r.tellRestricted(due, restricted)
	return ctrl.Result{RequeueAfter: policy.Soonest(after, again)}, errors.Join(errs...)
}

// decide asks the rollout about all Machines to replace. again is when to look again; 0 if there is no Machine to
// replace, and none has a place.
func (r *replacer) decide(ctx context.Context, due []dueMachine, hash string) (
	decisions map[string]policy.ReplaceDecision, again time.Duration, err error) {
	candidates := make([]policy.ReplaceCandidate, len(due))
	for i := range due {
		candidates[i] = r.candidate(due[i], hash)
	}
	decision, err := r.rollout.Replace(ctx, candidates)
	if len(due) > 0 || slices.ContainsFunc(decision.Places, func(p policy.Place) bool { return p.Machine != "" }) {
		again = recheck
	}
	return decision.Machines, again, err
}

// keyHash reads the present key; ok is false while there is no usable one, and then nothing can be
// said about any host.
func (r *replacer) keyHash(ctx context.Context, keys credential.Keys) (hash string, ok bool, err error) {
	key, err := keys.PrivateKey(ctx)
	if _, unusable := contract.AsProblem(err); unusable {
		return "", false, nil
	}
	return key.Hash, err == nil, err
}

// dueMachine is a Machine that should make room.
type dueMachine struct {
	machine inventory.Machine
	cause   policy.ReplaceCause
	// instance is that of its host, as the cache shows it.
	instance *v1alpha1.WindowsInstance
	// node of its host; empty when it has none.
	node string
}

// due lists the Machines that should make room, those that never were nodes first, then by their
// age. after is when time alone makes the next one due, 0 for never. What became of those that came
// instead of others is noted on the way.
func (r *replacer) due(ctx context.Context, hash string) (due []dueMachine, after time.Duration, err error) {
	if err := r.attempts.load(ctx); err != nil {
		return nil, 0, err
	}
	all, err := r.owned(ctx)
	if err != nil {
		return nil, 0, err
	}
	for _, one := range all {
		m, instance := one.machine, one.instance
		if instance.Status.PublicKeyHash == hash {
			if err := r.attempts.accepted(ctx, m); err != nil {
				return nil, 0, err
			}
		}
		cause, wait := policy.WhyReplace(instance, hash, r.options.Now(), r.options.RefusalTimeout)
		if cause != "" && !m.Deleting {
			one.cause = cause
			due = append(due, one)
		}
		after = policy.Soonest(after, max(wait, 0))
	}
	slices.SortFunc(due, func(a, b dueMachine) int {
		return cmp.Or(strings.Compare(string(b.cause), string(a.cause)),
			a.machine.CreatedAt.Compare(b.machine.CreatedAt), strings.Compare(a.machine.Name, b.machine.Name))
	})
	return due, after, nil
}

// owned lists all Machines that have an instance, with it.
func (r *replacer) owned(ctx context.Context) (all []dueMachine, err error) {
	list, instances := &machinev1beta1.MachineList{}, &v1alpha1.WindowsInstanceList{}
	if err := r.machines.List(ctx, list, client.InNamespace(contract.MachineAPINamespace),
		client.MatchingLabels(windows())); err != nil {
		return nil, fmt.Errorf("listing Machines: %w", err)
	}
	if err := r.client.List(ctx, instances, client.InNamespace(r.options.Namespace)); err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	byName := map[string]*v1alpha1.WindowsInstance{}
	for i := range instances.Items {
		byName[instances.Items[i].Name] = &instances.Items[i]
	}
	for i := range list.Items {
		m := fromOpenShift(&list.Items[i])
		if instance := byName[m.Name]; instance != nil && isOf(instance, m) {
			all = append(all, dueMachine{machine: m, instance: instance, node: nodeOf(m, instance)})
		}
	}
	return all, nil
}

// isOf says whether an instance was made from this very Machine.
func isOf(instance *v1alpha1.WindowsInstance, m inventory.Machine) bool {
	return ofMachine(instance) && instance.Spec.Source.Name == m.Name && instance.Spec.Source.UID == m.UID
}

// nodeOf is the Node of a Machine's host, as its instance names it, or else the Machine: an instance that lost its
// status names none. It is empty while neither does.
func nodeOf(m inventory.Machine, instance *v1alpha1.WindowsInstance) string {
	return cmp.Or(instance.Status.NodeName, m.NodeRef)
}

// askAgainAfter is how long a host has to answer before its answer is requested once more.
const askAgainAfter = time.Minute

// ask requests that a host be asked whether it accepts the key. What it says is an event.
func (r *replacer) ask(ctx context.Context, name string) error {
	instance, now := &v1alpha1.WindowsInstance{}, r.options.Now()
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: r.options.Namespace, Name: name}, instance); err != nil {
		return wrap("reading instance "+name, client.IgnoreNotFound(err))
	}
	asked, err := time.Parse(time.RFC3339, instance.Annotations[contract.TryKeyAnnotation])
	if err == nil && now.Sub(asked).Abs() < askAgainAfter {
		return nil
	}
	patch := client.MergeFrom(instance.DeepCopy())
	metav1.SetMetaDataAnnotation(&instance.ObjectMeta, contract.TryKeyAnnotation, now.UTC().Format(time.RFC3339))
	return wrap("asking the host of instance "+name, client.IgnoreNotFound(r.client.Patch(ctx, instance, patch)))
}

// candidate describes a Machine to replace, as the caches show it.
func (r *replacer) candidate(due dueMachine, hash string) policy.ReplaceCandidate {
	m := due.machine
	c := policy.ReplaceCandidate{Name: m.Name, Cause: due.cause, CreatedAt: m.CreatedAt, Node: due.node,
		Ignored: m.Ignored, Leaving: m.Deleting, ManagedBy: m.ManagedBy, Paused: due.instance.Spec.Paused,
		Stale:   policy.IsRefusalStale(due.instance, r.options.Now()),
		Unready: r.options.UserData != nil && !r.options.UserData(hash)}
	if m.Owner != nil && m.Owner.Kind == ownerKind {
		c.Set, c.Ineffective = m.Owner.UID, r.attempts.isIneffective(m.Owner.UID, m.UID, hash)
	}
	return c
}

// replace deletes a Machine that has a place, unless the Machine or its instance has changed. If the Machine certainly
// stays, replace withdraws the place. If the outcome is unknown, the place stays, and the deletion is tried again.
func (r *replacer) replace(ctx context.Context, due dueMachine, hash string) error {
	err := r.remove(ctx, due, hash)
	if errors.Is(err, errChanged) || isRefused(err) {
		err = errors.Join(err, r.rollout.Withdraw(ctx, due.machine.Name))
	}
	if errors.Is(err, errChanged) {
		return nil // it is looked at again
	}
	return err
}

// isRefused reports that the API server has certainly not done a write.
func isRefused(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) &&
		(status.Status().Code < http.StatusInternalServerError || apierrors.IsServiceUnavailable(err))
}

// remove reads the Machine and its instance from the API server, and deletes the Machine if that is still right.
func (r *replacer) remove(ctx context.Context, due dueMachine, hash string) error {
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
	cause, _ := policy.WhyReplace(instance, hash, r.options.Now(), r.options.RefusalTimeout)
	if now.UID != due.machine.UID || now.Deleting || now.Ignored || cause == "" || instance.Spec.Paused ||
		policy.IsRefusalStale(instance, r.options.Now()) {
		return errChanged
	}
	sets, err := r.options.View.Sets(ctx, true)
	if err != nil {
		return err
	}
	if err = r.attempts.replaced(ctx, due.machine, hash, sets); err != nil {
		return err
	}
	return r.delete(ctx, m, due)
}

// delete deletes the very Machine that was decided about, as it was then.
func (r *replacer) delete(ctx context.Context, m *machinev1beta1.Machine, due dueMachine) error {
	err := r.client.Delete(ctx, m, client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return errChanged
	}
	if err != nil {
		r.tellFailed(due, err)
		return fmt.Errorf("deleting Machine %s: %w", m.Name, err)
	}
	r.tellDeleted(due)
	logf.FromContext(ctx).Info("machine deleted, its set makes another", "machine", m.Name, "cause", due.cause)
	return nil
}
