// Package rollout decides which host may be disrupted next. Instances request a slot in the rollout budget in their
// status. The controller of Machines passes in the Machines to replace. This package reads the fleet, calls
// policy.DecideSlots, and writes the list of slots.
//
// All slots are in one ConfigMap. A decision first reads this list, and then the fleet from the API server. Then it
// writes the list with the resource version that it read. If two operators decide at the same time, the API server
// refuses the later write. The reasons why requests wait are only in memory.
package rollout

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=windows-rollout-places,verbs=get;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsmachineconfigs,resourceNames=cluster,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/observed"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// decisionTimeout ends a decision if the API server does not answer.
	decisionTimeout = 30 * time.Second
	// waitingRetry is how often the controller decides again while a request waits: a maintenance window may open, or
	// the pods of a node may count as lost.
	waitingRetry  = time.Minute
	conflictRetry = time.Second
	troubleRetry  = 10 * time.Second
	// news is the size of the channel of Answers. A full channel loses events, and instances check after a minute.
	news = 8192
)

// Sets returns the sets that replace deleted hosts.
type Sets interface {
	// Sets reads the sets from the API server if live is true, and otherwise from a cache. While the cluster has no API
	// for sets, it returns none.
	Sets(ctx context.Context, live bool) ([]policy.Set, error)
}

// Options of a Rollout. All are required except Sets and Now.
type Options struct {
	// Cached reads through the manager's cache. Live reads from the API server.
	Cached, Live client.Reader
	Writer       client.Writer
	Sets         Sets
	// Namespace is the namespace of the operator and of the instances.
	Namespace string
	// Now returns the time. nil means time.Now.
	Now func() time.Time
}

// Rollout assigns the slots in the rollout budget. It is safe for concurrent use.
type Rollout struct {
	options Options
	// Observed records when this operator first saw each Node not Ready.
	Observed *observed.Log
	answers  chan event.GenericEvent

	// deciding allows one decision at a time, and guards the field `last`: the list after the last read or write.
	deciding sync.Mutex
	last     *list

	mu       sync.Mutex
	verdicts map[string]policy.Verdict
	// trouble is why the controller can't decide, or empty.
	trouble string
}

// New returns a Rollout. It fails if a required option is missing.
func New(options Options) (*Rollout, error) {
	if options.Cached == nil || options.Live == nil || options.Writer == nil || options.Namespace == "" {
		return nil, errors.New("creating the rollout: an option is missing")
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Rollout{options: options, Observed: observed.New(options.Now), verdicts: map[string]policy.Verdict{},
		answers: make(chan event.GenericEvent, news)}, nil
}

// Setup adds the controller to a manager.
func (r *Rollout) Setup(mgr ctrl.Manager) error {
	look := handler.EnqueueRequestsFromMapFunc(watch.One(r.options.Namespace, contract.SlotsConfigMap))
	err := ctrl.NewControllerManagedBy(mgr).Named("rollout").
		Watches(&v1alpha1.WindowsInstance{}, look, builder.WithPredicates(watch.Changed(instanceNews))).
		Watches(&corev1.Node{}, look, builder.WithPredicates(watch.Changed(nodeNews))).
		Watches(&v1alpha1.WindowsMachineConfig{}, look, builder.WithPredicates(predicate.Or(
			predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the rollout controller: %w", err)
	}
	return nil
}

// instanceNews and nodeNews return the parts of an instance and of a Node whose changes need a new decision.
func instanceNews(i *v1alpha1.WindowsInstance) []any {
	s := &i.Status
	var revision string
	if s.Activity != nil {
		revision = s.Activity.Revision
	}
	return []any{s.Slot, i.Purpose(), revision, s.IsRequested(), s.FailedRevision, s.NodeName, s.Joined(),
		s.Phase == v1alpha1.PhaseRemoving, i.Spec.RemovalPolicy}
}

func nodeNews(n *corev1.Node) policy.Fleet { return policy.NewFleet([]corev1.Node{*n}, nil, nil, nil) }

// Answers returns a channel that receives each instance whose verdict has changed.
func (r *Rollout) Answers() <-chan event.GenericEvent { return r.answers }

// Verdict returns the last decision about the request of an instance, or the reason why the controller can't decide.
// The second result is false if there was no decision about this instance yet.
func (r *Rollout) Verdict(instance *v1alpha1.WindowsInstance) (policy.Verdict, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.trouble != "" {
		return policy.Verdict{Reason: contract.ReasonAPICallFailed, Why: r.trouble}, true
	}
	verdict, ok := r.verdicts[string(instance.UID)]
	return verdict, ok
}

// HasSlot reports whether an instance has the slot that it requests, according to the API server. If the instance does
// not use the slot yet, or if the list was deleted, HasSlot makes a new decision.
func (r *Rollout) HasSlot(ctx context.Context, instance *v1alpha1.WindowsInstance) (bool, error) {
	if instance.Status.HasSlot() {
		read, err := r.read(ctx)
		if err != nil || policy.SlotOf(read.slots, instance) != nil {
			return err == nil, err
		}
	}
	decision, err := r.decide(ctx, policy.RolloutState{Uses: instance.UID})
	return policy.SlotOf(decision.Slots, instance) != nil, err
}

// Reconcile decides about the instances that request a slot.
func (r *Rollout) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	decision, err := r.decide(ctx, policy.RolloutState{})
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return ctrl.Result{RequeueAfter: conflictRetry}, nil // another operator has written the list
	}
	r.mu.Lock()
	if r.trouble = ""; err != nil {
		r.trouble = fmt.Sprintf("%.500s", err.Error())
	}
	r.mu.Unlock()
	if err != nil { // the queue's back-off would grow to minutes
		logf.FromContext(ctx).Error(err, "slots in the rollout budget can't be granted")
		return ctrl.Result{RequeueAfter: troubleRetry}, nil
	}
	for _, verdict := range decision.Verdicts {
		if !verdict.Allowed {
			return ctrl.Result{RequeueAfter: waitingRetry}, nil
		}
	}
	return ctrl.Result{}, nil
}

// Replace decides about all Machines to replace, together with the requests of instances. If the action for a Machine
// is policy.ActReplace, the Machine has a slot. The caller must then delete the Machine or call Withdraw.
func (r *Rollout) Replace(ctx context.Context,
	machines []policy.ReplaceCandidate) (policy.RolloutDecision, error) {
	return r.decide(ctx, policy.RolloutState{Machines: machines, IsKnown: true})
}

// Withdraw releases the slot of a Machine. Call it only if the Machine certainly was not deleted.
func (r *Rollout) Withdraw(ctx context.Context, machine string) error {
	r.deciding.Lock()
	defer r.deciding.Unlock()
	read, err := r.read(ctx)
	if err != nil {
		return err
	}
	return r.write(ctx, read, slices.DeleteFunc(slices.Clone(read.slots),
		func(p policy.Slot) bool { return p.Name == policy.MachineName(machine) }))
}

// decide makes one decision. It first decides from the cache. If this decision would change the list or delete a
// Machine, decide reads the API server and decides again. If given.Uses names an instance that is about to use its
// slot, decide reads the API server at once. The parameter `given` contains only what the caller knows.
func (r *Rollout) decide(ctx context.Context, given policy.RolloutState) (decision policy.RolloutDecision, err error) {
	r.deciding.Lock()
	defer r.deciding.Unlock()
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	isLive := r.last == nil || given.Uses != ""
	for {
		if isLive {
			read, err := r.read(ctx)
			if err != nil {
				return decision, err
			}
			r.last = &read
		}
		state, err := r.look(ctx, given, isLive)
		if err != nil {
			return decision, err
		}
		decision = policy.DecideSlots(r.last.slots, state)
		isSame := slices.Equal(decision.Slots, r.last.slots)
		if !isLive && (!isSame || decision.Replaces()) {
			isLive = true
			continue
		}
		if !isSame {
			err = r.write(ctx, *r.last, decision.Slots)
		}
		if problem, ok := contract.AsProblem(err); ok {
			logf.FromContext(ctx).Error(err, "no slot in the rollout budget can be granted")
			decision, err = unwritten(decision, problem), nil
		}
		if err == nil {
			r.answer(state, decision)
		}
		return decision, err
	}
}

// The function `unwritten` returns the decision after the API server refused the new list: no request gets a slot.
func unwritten(d policy.RolloutDecision, problem *contract.Problem) policy.RolloutDecision {
	d.Slots = nil
	for name, verdict := range d.Verdicts {
		if verdict.Allowed {
			d.Verdicts[name] = policy.Verdict{Reason: problem.Reason, Why: problem.Detail}
		}
	}
	for name, decision := range d.Machines {
		if decision.Action == policy.ActReplace {
			d.Machines[name] = policy.ReplaceDecision{Action: policy.ActWait, Reason: problem.Reason,
				Message: problem.Detail}
		}
	}
	return d
}

// answer stores the verdicts. It sends an instance to the channel of Answers if the instance now has a slot, or waits
// for another reason than before. Exception: the instance that requested this decision gets no event.
func (r *Rollout) answer(state policy.RolloutState, decision policy.RolloutDecision) {
	r.mu.Lock()
	before := r.verdicts
	r.verdicts = decision.Verdicts
	r.mu.Unlock()
	instances := state.Instances
	for i := range instances {
		verdict, asks := decision.Verdicts[string(instances[i].UID)]
		old, known := before[string(instances[i].UID)]
		isNews := !known || old.Allowed != verdict.Allowed || !verdict.Allowed && old.Shown() != verdict.Shown() ||
			verdict.Allowed && state.Uses == "" // the instance may have missed the earlier event
		if asks && isNews && !instances[i].Status.HasSlot() && instances[i].UID != state.Uses {
			select {
			case r.answers <- event.GenericEvent{Object: &instances[i]}:
			default:
			}
		}
	}
}

// look reads the fleet and adds it to the state. The caller must read the list of slots first. Then a later write of
// the list fails if another operator assigns a slot in the meantime.
func (r *Rollout) look(ctx context.Context, state policy.RolloutState, live bool) (policy.RolloutState, error) {
	reader := r.options.Cached
	if live {
		reader = r.options.Live
	}
	instances, nodes := &v1alpha1.WindowsInstanceList{}, &corev1.NodeList{}
	err := reader.List(ctx, instances, client.InNamespace(r.options.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return state, fmt.Errorf("listing instances: %w", err)
	}
	if r.options.Sets != nil {
		if state.Sets, err = r.options.Sets.Sets(ctx, live); err != nil {
			return state, fmt.Errorf("reading the sets of hosts: %w", err)
		}
	}
	err = reader.List(ctx, nodes, client.MatchingLabels{contract.OSIDLabel: contract.OSIDWindows},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return state, fmt.Errorf("listing nodes: %w", err)
	}
	if state.Config, err = cluster.Settings(ctx, reader, r.options.Namespace); err != nil {
		return state, err
	}
	state.Nodes, state.Instances, state.Now = nodes.Items, instances.Items, r.options.Now()
	state.NotReady = map[string]policy.Since{}
	for i := range nodes.Items {
		state.NotReady[nodes.Items[i].Name] = r.Observed.NotReady(&nodes.Items[i])
	}
	return state, nil
}
