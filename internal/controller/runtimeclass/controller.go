package runtimeclass

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
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
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// retryInUse is how often it is looked whether pods still use a class that is to go: each look
	// lists all pods.
	retryInUse = 10 * time.Minute
	// lookTimeout is how long one look may take.
	lookTimeout = 2 * time.Minute
)

// Reconciler keeps the RuntimeClasses for Windows.
type Reconciler struct {
	client client.Client
	pods   kubernetes.Interface
	events events.EventRecorder
	now    func() time.Time
	// namespace of the operator.
	namespace string
	// reported is why each class was reported last. Only one worker has it.
	reported map[string]contract.Reason
}

func newReconciler(api client.Client, podClient kubernetes.Interface, recorder events.EventRecorder,
	now func() time.Time) *Reconciler {
	return &Reconciler{client: api, pods: podClient, events: recorder, now: now, reported: map[string]contract.Reason{}}
}

// Setup adds the controller to a manager. The namespace is the operator's, podClient is from package pods.
func Setup(mgr ctrl.Manager, namespace string, podClient kubernetes.Interface) error {
	r := newReconciler(mgr.GetClient(), podClient, mgr.GetEventRecorder(contract.OperatorServiceAccount),
		time.Now)
	r.namespace = namespace
	all := handler.EnqueueRequestsFromMapFunc(watch.One("", contract.MachineConfigObject))
	ours := watch.Named("", policy.RuntimeClassNames()...)
	err := ctrl.NewControllerManagedBy(mgr).Named("runtimeclass").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, ReconciliationTimeout: lookTimeout}).
		Watches(&corev1.Node{}, all, builder.WithPredicates(buildChanged())).
		Watches(&nodev1.RuntimeClass{}, all, builder.WithPredicates(ours)).
		Watches(&v1alpha1.WindowsMachineConfig{}, all, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the runtimeclass controller: %w", err)
	}
	return nil
}

// buildChanged lets through what changes the builds that the cluster has. Nodes are written every
// few seconds.
func buildChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return e.Object.GetLabels()[contract.BuildLabel] != "" },
		DeleteFunc: func(e event.DeleteEvent) bool { return e.Object.GetLabels()[contract.BuildLabel] != "" },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetLabels()[contract.BuildLabel] != e.ObjectNew.GetLabels()[contract.BuildLabel]
		},
	}
}

// Reconcile makes, restores and withdraws the RuntimeClasses for Windows, all at once.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	input, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	plan := policy.PlanRuntimeClasses(input)
	var problems []error
	for _, class := range plan.Create {
		problems = append(problems, r.create(ctx, class))
	}
	for _, class := range plan.Update {
		problems = append(problems, r.update(ctx, class))
	}
	stay, err := r.withdraw(ctx, plan.Withdraw)
	problems = append(problems, err)
	r.report(ctx, plan.Foreign, stay)
	if len(stay.inUse)+len(stay.unsure) > 0 && (plan.After == 0 || plan.After > retryInUse) {
		plan.After = retryInUse
	}
	if err = errors.Join(problems...); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: plan.After}, nil
}

func (r *Reconciler) gather(ctx context.Context) (policy.RuntimeClassInput, error) {
	input := policy.RuntimeClassInput{Existing: map[string]nodev1.RuntimeClass{}, Now: r.now()}
	config, err := cluster.Settings(ctx, r.client, r.namespace)
	if err != nil {
		return input, err
	}
	input.Remove = config.Spec.RuntimeClasses == v1alpha1.RuntimeClassesRemoved
	nodes, classes := &corev1.NodeList{}, &nodev1.RuntimeClassList{}
	if err = r.client.List(ctx, nodes, client.MatchingLabels{corev1.LabelOSStable: string(corev1.Windows)},
		client.UnsafeDisableDeepCopy); err != nil {
		return input, fmt.Errorf("listing nodes: %w", err)
	}
	if err = r.client.List(ctx, classes); err != nil {
		return input, fmt.Errorf("listing RuntimeClasses: %w", err)
	}
	for _, node := range nodes.Items {
		input.Builds = append(input.Builds, node.Labels[contract.BuildLabel])
	}
	for _, class := range classes.Items {
		input.Existing[class.Name] = class
	}
	return input, nil
}

func (r *Reconciler) create(ctx context.Context, class *nodev1.RuntimeClass) error {
	err := r.client.Create(ctx, class)
	switch {
	case apierrors.IsAlreadyExists(err): // its event is on the way, and brings another look
		return nil
	case err != nil:
		return fmt.Errorf("creating RuntimeClass %s: %w", class.Name, err)
	}
	logf.FromContext(ctx).Info("created a RuntimeClass", "runtimeClass", class.Name)
	return nil
}

func (r *Reconciler) update(ctx context.Context, class *nodev1.RuntimeClass) error {
	err := r.client.Update(ctx, class)
	switch {
	case apierrors.IsConflict(err): // the cache is behind: its event brings another look
		return nil
	case err != nil:
		return fmt.Errorf("updating RuntimeClass %s: %w", class.Name, err)
	}
	logf.FromContext(ctx).Info("updated a RuntimeClass", "runtimeClass", class.Name,
		"unusedSince", class.Annotations[contract.UnusedSinceAnnotation])
	return nil
}

// kept are classes that are to go and stay: pods use them, or not all pods could be read.
type kept struct{ inUse, unsure []nodev1.RuntimeClass }

// withdraw deletes the classes that no pod uses.
func (r *Reconciler) withdraw(ctx context.Context, classes []nodev1.RuntimeClass) (stay kept, err error) {
	if len(classes) == 0 {
		return stay, nil
	}
	unused, all, err := r.unused(ctx, classes)
	if err != nil {
		return stay, err
	}
	for _, class := range classes {
		switch {
		case !unused[class.Name]:
			stay.inUse = append(stay.inUse, class)
			continue
		case !all:
			stay.unsure = append(stay.unsure, class)
			continue
		}
		err = r.client.Delete(ctx, &class,
			client.Preconditions{UID: &class.UID, ResourceVersion: &class.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return stay, fmt.Errorf("deleting RuntimeClass %s: %w", class.Name, err)
		}
		logf.FromContext(ctx).Info("deleted a RuntimeClass", "runtimeClass", class.Name)
	}
	return stay, nil
}

// errEnough ends a look at pods when each class is in use.
var errEnough = errors.New("each class is in use")

// unused gives those of the classes that no pod was seen to have which has not ended, and whether all
// pods were seen that matter.
func (r *Reconciler) unused(ctx context.Context, classes []nodev1.RuntimeClass) (map[string]bool, bool, error) {
	unused := map[string]bool{}
	for _, class := range classes {
		unused[class.Name] = true
	}
	live := fields.AndSelectors(fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))
	all, err := pods.Each(ctx, r.pods, pods.Query{Fields: live, Page: pods.Page, Now: r.now},
		func(pod *corev1.Pod) error {
			if pod.Spec.RuntimeClassName != nil {
				delete(unused, *pod.Spec.RuntimeClassName)
			}
			if len(unused) == 0 {
				return errEnough
			}
			return nil
		})
	if errors.Is(err, errEnough) {
		return unused, true, nil
	}
	return unused, all, err
}

// report writes an event about each class that is not as planned, once.
func (r *Reconciler) report(ctx context.Context, foreign []nodev1.RuntimeClass, stay kept) {
	found := map[string]contract.Reason{}
	tell := func(class nodev1.RuntimeClass, reason contract.Reason, what string) {
		found[class.Name] = reason
		if r.reported[class.Name] == reason {
			return
		}
		logf.FromContext(ctx).Info("a RuntimeClass stays as it is", "runtimeClass", class.Name, "reason", reason)
		r.events.Eventf(&class, nil, corev1.EventTypeWarning, string(reason), "Reconcile", "%s (W%d). %s", what,
			reason.Number(), reason.Fix())
	}
	for _, class := range foreign {
		tell(class, contract.ReasonRuntimeClassForeign,
			"RuntimeClass "+class.Name+" was not made by the operator, and has another handler or node selector")
	}
	for _, class := range stay.inUse {
		tell(class, contract.ReasonRuntimeClassInUse, "RuntimeClass "+class.Name+" is to go, and pods use it")
	}
	for _, class := range stay.unsure {
		tell(class, contract.ReasonRuntimeClassInUse, "RuntimeClass "+class.Name+
			" is to go, and pods may use it: not all pods could be read")
	}
	r.reported = found
}
