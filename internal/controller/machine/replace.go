package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/internal/rollout"
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
	gate     *rollout.Gate
	events   events.EventRecorder
	options  Options
	told     *told
	attempts *attempts
	// missed are Machines whose instance was another by the time that the use of their place was written.
	// Others go first, so that no host keeps them by what its kubelet reports.
	missed map[string]bool
}

// errChanged says that a Machine is not what it was when it was decided about.
var errChanged = errors.New("the Machine changed meanwhile")

// Reconcile looks at all Machines.
func (r *replacer) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	hash, ok, err := r.keyHash(ctx, r.options.Keys)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !ok {
		return r.withoutKey(ctx)
	}
	due, after, err := r.due(ctx, hash)
	if errors.Is(err, errChanged) {
		return ctrl.Result{RequeueAfter: staleRetry}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if len(due) == 0 {
		r.told.news(nil)
		clear(r.missed)
		return ctrl.Result{RequeueAfter: after}, nil
	}
	// A cache that lags behind must not have Machines deleted that have the right key.
	if present, _, err := r.keyHash(ctx, r.options.LiveKeys); err != nil || present != hash {
		return ctrl.Result{RequeueAfter: staleRetry}, err
	}
	decisions, errs := r.consider(ctx, due, hash)
	restricted := map[string]policy.ReplaceDecision{}
	for i, decision := range decisions {
		if decision.Action == policy.ActWait || decision.Action == policy.ActNever {
			restricted[due[i].machine.Name] = decision
		}
		if decision.Action == policy.ActAsk {
			errs = append(errs, r.ask(ctx, due[i].machine.Name))
		}
		if decision.Reason == contract.ReasonReplacementIneffective {
			r.attempts.stored = nil // the administrator may delete it
		}
	}
	r.tellRestricted(due, restricted)
	if err = errors.Join(errs...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: recheck}, nil
}

// withoutKey gives places back while nobody can say of any Machine whether it is to go.
func (r *replacer) withoutKey(ctx context.Context) (ctrl.Result, error) {
	all, err := r.owned(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	result := ctrl.Result{}
	for _, one := range all {
		left, err := r.giveBack(ctx, one.instance, one.machine.Deleting)
		if errors.Is(err, errChanged) {
			left, err = staleRetry, nil
		}
		if err != nil {
			return ctrl.Result{}, err
		}
		result.RequeueAfter = policy.Soonest(result.RequeueAfter, left)
	}
	return result, nil
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
		} else {
			left, err := r.giveBack(ctx, instance, m.Deleting)
			if err != nil {
				return nil, 0, err
			}
			after = policy.Soonest(after, left)
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

// consider has it decided about all Machines by one look, and deletes those that may go.
func (r *replacer) consider(ctx context.Context, due []dueMachine, hash string) ([]policy.ReplaceDecision, []error) {
	decisions, looks := make([]policy.ReplaceDecision, len(due)), make([]rollout.Snapshot, len(due))
	requests := make([]rollout.Request, len(due))
	for i := range due {
		requests[i] = request(due[i], func(look rollout.Snapshot) bool {
			looks[i] = look
			decisions[i] = r.decide(due[i].machine, look, hash)
			return decisions[i].Action == policy.ActReplace
		})
		if r.missed[due[i].machine.Name] {
			requests[i].Order.NotReady, requests[i].Order.Since = false, r.options.Now().Add(time.Minute)
		}
	}
	errs := make([]error, len(due))
	answers := r.gate.AcquireAll(ctx, requests)
	ctx, cancel := context.WithTimeout(ctx, rollout.UseTimeout)
	defer cancel()
	for i, answer := range answers {
		switch problem, ok := contract.AsProblem(answer.Err); {
		case ok:
			decisions[i] = policy.ReplaceDecision{Action: policy.ActWait, Reason: problem.Reason,
				Message: problem.Detail}
		case answer.Granted:
			decisions[i], errs[i] = r.replace(ctx, due[i], looks[i], hash)
		case answer.Err == nil:
			_, errs[i] = r.giveBack(ctx, due[i].instance, false)
		default:
			errs[i] = answer.Err
		}
		if errors.Is(errs[i], errChanged) { // it is looked at again
			errs[i] = nil
		}
	}
	return decisions, errs
}

// giveBack gives back the place of a Machine that is not to be deleted any more, or not yet: a write may
// have been lost before, or an operator. left is how long its deletion may still arrive; the place is
// kept until then.
func (r *replacer) giveBack(ctx context.Context, instance *v1alpha1.WindowsInstance,
	isLeaving bool) (left time.Duration, err error) {
	isUsed, left := r.gate.IsUsed(instance)
	if isLeaving || !isUsed || left > 0 {
		return left, nil
	}
	err = r.gate.Return(ctx, instance.DeepCopy())
	if apierrors.IsConflict(err) {
		return 0, errChanged
	}
	return 0, wrap("giving back the place of Machine "+instance.Name, err)
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

func request(due dueMachine, decide func(look rollout.Snapshot) bool) rollout.Request {
	return rollout.Request{Name: rollout.MachineName(due.machine.Name), Node: due.node, Machine: due.machine.Name,
		Order: rollout.Order{NotReady: due.cause == policy.CauseKeyRefused, Since: due.machine.CreatedAt,
			Name: due.machine.Name},
		Decide: decide}
}

func (r *replacer) decide(m inventory.Machine, look rollout.Snapshot, hash string) policy.ReplaceDecision {
	return policy.DecideReplace(r.candidate(m, look, hash), look.Fleet, look.MaxUnavailable, look.Closed)
}

// replace deletes a Machine that has a place. First its instance says that the place is used; it is
// given back if the Machine certainly stays.
func (r *replacer) replace(ctx context.Context, due dueMachine, look rollout.Snapshot,
	hash string) (policy.ReplaceDecision, error) {
	instance := look.Instances[due.machine.Name].DeepCopy()
	err := r.gate.Use(ctx, instance)
	delete(r.missed, due.machine.Name)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		r.missed[due.machine.Name] = true
		return policy.ReplaceDecision{}, errChanged
	case err != nil:
		return policy.ReplaceDecision{}, err
	}
	decision, err := r.remove(ctx, due, look, hash)
	if errors.Is(err, errChanged) || rollout.IsNotWritten(err) {
		err = errors.Join(err, r.gate.Return(ctx, instance))
	}
	return decision, err
}

// remove deletes a Machine, unless it would be decided otherwise about it as it is now.
func (r *replacer) remove(ctx context.Context, due dueMachine, look rollout.Snapshot,
	hash string) (policy.ReplaceDecision, error) {
	now := &machinev1beta1.Machine{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: due.machine.Namespace, Name: due.machine.Name}, now)
	switch {
	case apierrors.IsNotFound(err), err == nil && now.UID != due.machine.UID:
		return policy.ReplaceDecision{Action: policy.ActNothing}, errChanged
	case err != nil:
		return policy.ReplaceDecision{}, wrap("reading Machine "+due.machine.Name, err)
	}
	m := fromOpenShift(now)
	if look, err = r.byNow(ctx, m, look); err != nil {
		return policy.ReplaceDecision{}, err
	}
	decision := r.decide(m, look, hash)
	if decision.Action != policy.ActReplace {
		return decision, errChanged
	}
	if err = r.attempts.replaced(ctx, due.machine, hash, look.Fleet.Sets); err != nil {
		return decision, err
	}
	return decision, r.delete(ctx, now, due)
}

// byNow is a look with the Node of a Machine as it is by now. A node may go as out of service only if it has not come
// back since the fleet was read: that changes nothing of its instance, by which a place would be void.
func (r *replacer) byNow(ctx context.Context, m inventory.Machine, look rollout.Snapshot) (rollout.Snapshot, error) {
	instance := look.Instances[m.Name]
	if instance == nil || nodeOf(m, instance) == "" {
		return look, nil
	}
	name, node := nodeOf(m, instance), &corev1.Node{}
	err := r.live.Get(ctx, client.ObjectKey{Name: name}, node)
	if apierrors.IsNotFound(err) {
		node, err = nil, nil
	}
	if err != nil {
		return look, wrap("reading Node "+name, err)
	}
	look.Fleet = look.Fleet.With(name, node, instance, r.gate.Observed.NotReady(node))
	return look, nil
}

func (r *replacer) candidate(m inventory.Machine, look rollout.Snapshot, hash string) policy.ReplaceCandidate {
	c := policy.ReplaceCandidate{Name: m.Name, Ignored: m.Ignored, Leaving: m.Deleting, ManagedBy: m.ManagedBy}
	instance := look.Instances[m.Name]
	if instance == nil || !isOf(instance, m) {
		return c
	}
	why := func(i *v1alpha1.WindowsInstance) policy.ReplaceCause {
		cause, _ := policy.WhyReplace(i, hash, r.options.Now(), r.options.RefusalTimeout)
		return cause
	}
	c.Cause, c.Stale = why(instance), policy.IsRefusalStale(instance, r.options.Now())
	c.Node, c.Paused = nodeOf(m, instance), instance.Spec.Paused
	if m.Owner != nil && m.Owner.Kind == ownerKind {
		c.Set = m.Owner.UID
		c.Due = look.Fleet.Count(c.Set, func(host string) bool {
			return look.Instances[host] != nil &&
				why(look.Instances[host]) != ""
		})
		c.Ineffective = r.attempts.isIneffective(m.Owner.UID, m.UID, hash)
	}
	c.Unready = r.options.UserData != nil && !r.options.UserData(hash)
	return c
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
