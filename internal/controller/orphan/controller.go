package orphan

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Reconciler handles Nodes that belong to no instance.
type Reconciler struct {
	client    client.Client
	live      client.Reader // reads from the API server
	events    events.EventRecorder
	namespace string
	now       func() time.Time

	// The keys of all maps are Node names. `since` says when a Node was first seen without an instance. forced has the
	// Nodes whose instance was just removed by force. `discarded` has the instances whose host was destroyed.
	since, forced, discarded sync.Map
}

// discarded is an instance that was removed because its Machine was deleted.
type discarded struct {
	instance *v1alpha1.WindowsInstance
	at       time.Time
}

const discardedFor = time.Hour

func newReconciler(api client.Client, live client.Reader, recorder events.EventRecorder, namespace string,
	now func() time.Time) *Reconciler {
	return &Reconciler{client: api, live: live, events: recorder, namespace: namespace, now: now}
}

// Setup adds the controller to a manager. namespace is the operator's namespace.
func Setup(mgr ctrl.Manager, namespace string) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(contract.OperatorServiceAccount),
		namespace, time.Now)
	windows := predicate.NewPredicateFuncs(func(o client.Object) bool {
		return o.GetLabels()[corev1.LabelOSStable] == string(corev1.Windows)
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("orphan").
		For(&corev1.Node{}, builder.WithPredicates(windows)).
		Watches(&v1alpha1.WindowsInstance{}, r.instances()).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the orphan controller: %w", err)
	}
	return nil
}

// instances returns a handler that reconciles the Node of an instance.
func (r *Reconciler) instances() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	look := func(q queue, o client.Object) {
		if instance, ok := o.(*v1alpha1.WindowsInstance); ok && instance.Status.NodeName != "" {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: instance.Status.NodeName}})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { look(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { look(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.deleted(e.Object)
			look(q, e.Object)
		},
	}
}

// The method `deleted` records a deleted instance if the removal was forced, or if the Machine was deleted.
func (r *Reconciler) deleted(o client.Object) {
	instance, ok := o.(*v1alpha1.WindowsInstance)
	if !ok || instance.Status.NodeName == "" {
		return
	}
	switch instance.Spec.RemovalPolicy {
	case v1alpha1.RemovalForce:
		r.forced.Store(instance.Status.NodeName, true)
	case v1alpha1.RemovalDiscard:
		r.discarded.Store(instance.Status.NodeName, discarded{instance, r.now()})
	}
}

// isDiscarded reports whether the Node was registered by a host that was destroyed with its Machine.
func (r *Reconciler) isDiscarded(node *corev1.Node) bool {
	r.discarded.Range(func(name, d any) bool {
		if r.now().Sub(d.(discarded).at) > discardedFor {
			r.discarded.Delete(name)
		}
		return true
	})
	found, is := r.discarded.Load(node.Name)
	d, _ := found.(discarded)
	return is && hasAddress(node, d.instance) &&
		policy.IsRegisteredAtEnd(node, d.instance.CreationTimestamp.Time, d.at)
}

// Reconcile decides about one Node.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	if err := r.note(ctx, request.Name); err != nil {
		return ctrl.Result{}, err
	}
	node := &corev1.Node{}
	if err := r.client.Get(ctx, request.NamespacedName, node); err != nil {
		r.since.Delete(request.Name)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	claim, err := r.claimed(ctx, node)
	if err != nil {
		return ctrl.Result{}, err
	}
	if claim != unclaimed {
		r.since.Delete(node.Name)
	}
	switch claim {
	case claimed:
		r.discarded.Delete(node.Name)
		return ctrl.Result{}, r.keep(ctx, node)
	case mayBeClaimed: // check again later: no event tells whether the instance gets another Node
		return ctrl.Result{RequeueAfter: policy.OrphanGrace}, nil
	}
	released, err := r.isReleased(ctx, node.Name)
	if err != nil {
		return ctrl.Result{}, err
	}
	isOurs, isDiscarded := policy.IsOurs(node), r.isDiscarded(node)
	// If the daemon's certificate expired after the release of the host, only kubelet writes to the Node. Such a Node
	// has none of the daemon's or the operator's annotations.
	isBack := released && node.Labels[contract.OSIDLabel] == contract.OSIDWindows
	if !isOurs && !isDiscarded && !isBack || node.Labels[corev1.LabelOSStable] != string(corev1.Windows) {
		r.since.Delete(node.Name)
		return ctrl.Result{}, nil
	}
	seen, _ := r.since.LoadOrStore(node.Name, r.now())
	since := seen.(time.Time)
	verdict := policy.JudgeOrphan(node, isOurs && released || isDiscarded, since, r.now())
	if verdict.Cordon || verdict.Remove {
		stays, err := cluster.KindStays(ctx, r.live, contract.InstanceCRD, since)
		if err != nil {
			return ctrl.Result{}, fmt.Errorf("finding out why node %s has no instance: %w", node.Name, err)
		}
		if !stays { // the CRD is deleted or new, so a missing instance proves nothing
			r.since.Delete(node.Name)
			return ctrl.Result{RequeueAfter: policy.OrphanGrace}, nil
		}
	}
	return ctrl.Result{RequeueAfter: verdict.After}, r.carryOut(ctx, node, verdict)
}

// note records persistently that the instance of a Node was removed by force.
func (r *Reconciler) note(ctx context.Context, name string) error {
	if _, forced := r.forced.Load(name); !forced {
		return nil
	}
	if err := r.addReleased(ctx, name); err != nil {
		return err
	}
	r.forced.Delete(name)
	return nil
}

type claim int

const (
	unclaimed claim = iota
	// mayBeClaimed: an instance without a Node has an address of this Node, or is in this Node's annotation.
	mayBeClaimed
	claimed
)

// The method `claimed` reports whether this Node belongs to an instance, or may soon belong to one. Kubelet may have
// written the annotation with an instance's name, so this annotation counts only if the instance has no Node yet.
func (r *Reconciler) claimed(ctx context.Context, node *corev1.Node) (claim, error) {
	name, _ := strings.CutPrefix(node.Annotations[contract.InstanceAnnotation], r.namespace+"/")
	named := &v1alpha1.WindowsInstance{}
	err := r.client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: name}, named)
	if err == nil && named.Status.NodeName == node.Name {
		return claimed, nil // don't list all instances at each event of each Node
	}
	instances := &v1alpha1.WindowsInstanceList{}
	if err = r.client.List(ctx, instances, client.InNamespace(r.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return unclaimed, fmt.Errorf("listing instances: %w", err)
	}
	found := unclaimed
	for _, i := range instances.Items {
		isNamed := node.Annotations[contract.InstanceAnnotation] == r.namespace+"/"+i.Name
		switch {
		case i.Status.NodeName == node.Name:
			return claimed, nil
		case i.Status.NodeName == "" && (isNamed || hasAddress(node, &i)):
			found = mayBeClaimed
		}
	}
	return found, nil
}

func hasAddress(node *corev1.Node, i *v1alpha1.WindowsInstance) bool {
	return slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return strings.EqualFold(a.Address, i.Spec.Address) || i.Spec.NodeIP != "" && a.Address == i.Spec.NodeIP
	})
}

// keep undoes this controller's changes to a Node that has an instance again. The join removes the cordon.
func (r *Reconciler) keep(ctx context.Context, node *corev1.Node) error {
	if err := r.dropReleased(ctx, node.Name); err != nil {
		return err
	}
	if _, marked := node.Annotations[contract.ReleasedAnnotation]; !marked {
		return nil
	}
	return r.patch(ctx, node, func() { delete(node.Annotations, contract.ReleasedAnnotation) })
}

func (r *Reconciler) carryOut(ctx context.Context, node *corev1.Node, verdict policy.Orphan) error {
	log := logf.FromContext(ctx).WithValues("node", node.Name)
	if verdict.Remove {
		err := r.client.Delete(ctx, node, client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting node %s: %w", node.Name, err)
		}
		log.Info("deleted the node of a host that was released by force, or with its Machine")
		return r.dropReleased(ctx, node.Name)
	}
	cordons := verdict.Cordon && !node.Spec.Unschedulable
	releases := verdict.Release != "" && node.Annotations[contract.ReleasedAnnotation] != verdict.Release
	unmarks := verdict.Cordon && node.Annotations[contract.InstanceAnnotation] != ""
	if !cordons && !releases && !unmarks {
		return nil
	}
	if err := r.patch(ctx, node, func() {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		if cordons {
			node.Spec.Unschedulable, node.Annotations[contract.CordonedAnnotation] = true, "true"
		}
		if releases {
			node.Annotations[contract.ReleasedAnnotation] = verdict.Release
		}
		// The instance in the annotation no longer exists, and another instance may get the node. Without the
		// annotation, the rollout budget does not count the node.
		delete(node.Annotations, contract.InstanceAnnotation)
	}); err != nil {
		return err
	}
	reason := contract.ReasonNodeOrphaned
	log.Info("node has no instance", "cordoned", cordons, "released", releases)
	r.events.Eventf(node, nil, corev1.EventTypeWarning, string(reason), "Check", "node %s is the operator's and "+
		"has no WindowsInstance (%s). %s", node.Name, reason.Code(), reason.Fix())
	return nil
}

func (r *Reconciler) patch(ctx context.Context, node *corev1.Node, edit func()) error {
	before := node.DeepCopy()
	edit()
	err := r.client.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("marking node %s: %w", node.Name, err)
	}
	return nil
}
