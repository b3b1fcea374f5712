package settings

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
	"github.com/windows-nodes/wmco/internal/controller/problem"
	"github.com/windows-nodes/wmco/internal/controller/watch"
	"github.com/windows-nodes/wmco/internal/instance/credential"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Options of the controller.
type Options struct {
	Namespace string
	Keys      credential.Keys
	Desired   Desired
	Missing   []payload.Missing
	// OperatorCondition names the object that tells OLM whether the operator may be upgraded. It is empty without OLM.
	OperatorCondition string
	// Troubles contains the problems of other controllers that don't concern a WindowsInstance.
	Troubles *problem.State
}

// Desired returns the published desired state, and the problems that prevent its publication.
type Desired interface {
	Current(ctx context.Context) (blueprint.Desired, blueprint.Facts, error)
	Problems() []*contract.Problem
	// Published returns the desired state that was published last, even if there are problems now, and the generation
	// of the WindowsMachineConfig that the state was rendered from.
	Published() (desired blueprint.Desired, generation int64, ok bool)
	// Changed returns a channel that receives an event when the result of one of the other methods has changed.
	Changed() <-chan event.GenericEvent
}

// Reconciler maintains the WindowsMachineConfig.
type Reconciler struct {
	Options
	client client.Client
	// live reads the OperatorCondition, which the operator may get, but may not list or watch.
	live   client.Reader
	events events.EventRecorder
	meters *meters
	now    func() time.Time
	warned bool // the user was already warned about the network
	// absent is when the controller first found that the object is absent, or zero.
	absent time.Time
}

// restoreAfter is how long the object may be absent before the operator creates it again: long enough for kubectl
// replace --force, and for a CRD that is deleted and created again.
const restoreAfter = time.Minute

// Setup adds the controller to a manager.
func Setup(mgr ctrl.Manager, options Options) error {
	r := &Reconciler{Options: options, client: mgr.GetClient(), live: mgr.GetAPIReader(),
		events: mgr.GetEventRecorder(contract.OperatorServiceAccount), meters: newMeters(metrics.Registry),
		now: time.Now}
	one := watch.One("", contract.MachineConfigObject)
	enqueue := handler.EnqueueRequestsFromMapFunc(one)
	start := batch.NewSignal() // triggers the first reconcile, which creates the object
	start.Send(&v1alpha1.WindowsMachineConfig{})
	err := ctrl.NewControllerManagedBy(mgr).Named("settings").
		// Changes of the status must also trigger a reconcile. Otherwise, a status that was compared with a stale cache
		// would not be compared again.
		Watches(&v1alpha1.WindowsMachineConfig{}, batch.News(one),
			builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Watches(&v1alpha1.WindowsInstance{}, batch.News(one), builder.WithPredicates(watch.Changed(shown))).
		Watches(&corev1.ConfigMap{}, enqueue,
			builder.WithPredicates(watch.Named(options.Namespace, contract.InstancesConfigMap))).
		Watches(&corev1.Secret{}, enqueue,
			builder.WithPredicates(watch.Named(options.Namespace, contract.PrivateKeySecret))).
		WatchesRawSource(source.Channel(options.Desired.Changed(), enqueue)).
		WatchesRawSource(source.Channel(options.Troubles.Changed(), enqueue)).
		WatchesRawSource(source.Channel(start, enqueue)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the settings controller: %w", err)
	}
	return nil
}

// Reconcile writes the status if it has changed.
func (r *Reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	config, err := cluster.Settings(ctx, r.client, r.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	if config.ResourceVersion == "" {
		return r.restore(ctx, config)
	}
	r.absent = time.Time{}
	facts, err := r.gather(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts.Generation, facts.Config, facts.Now = config.Generation, config, r.now()
	facts.Refused = append(slices.Clone(facts.Refused), policy.CheckRollout(config.Spec.Rollout)...)
	before := config.DeepCopy()
	failed := Assess(&config.Status, facts)
	r.meters.show(facts, config.Status.Rollout, failed) // before writes: alerts need the metrics even if a write fails
	if !equality.Semantic.DeepEqual(before.Status, config.Status) {
		if err = r.client.Status().Patch(ctx, config, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, fmt.Errorf("saving the status: %w", err)
		}
	}
	if w := facts.Warning; w != nil && !r.warned && len(facts.Instances) > 0 {
		r.warned = true // only once, because the user may be unable to change the network
		r.events.Eventf(config, nil, corev1.EventTypeWarning, string(w.Reason), "Read", "%s. %s", w.Error(),
			w.Reason.Fix())
	}
	if err = r.tellOLM(ctx, config.Status); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: r.again(config.Status, facts)}, nil
}

// restore creates the object. If the object existed before, restore first waits for restoreAfter, because a user may be
// replacing the object, and then creates the object with the last spec.
func (r *Reconciler) restore(ctx context.Context, last *v1alpha1.WindowsMachineConfig) (ctrl.Result, error) {
	wanted := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject},
		Spec: last.Spec}
	known := last.Name != ""
	if known {
		if r.absent.IsZero() {
			r.absent = r.now()
			problem := contract.NewProblem(contract.ReasonSettingsMissing, "the WindowsMachineConfig %s does not "+
				"exist; its spec stays in force, and is restored in %s", wanted.Name, restoreAfter)
			logf.FromContext(ctx).Info("the settings are absent", "detail", problem.Detail)
			r.events.Eventf(wanted, nil, corev1.EventTypeWarning, string(problem.Reason), "Restore", "%s. %s",
				problem.Error(), problem.Reason.Fix())
		}
		if left := restoreAfter - r.now().Sub(r.absent); left > 0 {
			return ctrl.Result{RequeueAfter: left}, nil
		}
	}
	if err := r.client.Create(ctx, wanted); apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, nil // the creation triggers the next reconcile
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("creating the WindowsMachineConfig: %w", err)
	}
	if known {
		r.events.Eventf(wanted, nil, corev1.EventTypeNormal, "SettingsRestored", "Restore",
			"It was absent for %s, and is restored with the spec that was in force.", restoreAfter)
	}
	return ctrl.Result{}, nil
}

// The method `again` returns the time until the next reconcile without an event, or 0. The status may depend on the
// time, and the operator can't watch the OperatorCondition.
func (r *Reconciler) again(status v1alpha1.WindowsMachineConfigStatus, facts Facts) (next time.Duration) {
	if r.OperatorCondition != "" {
		next = lookAgain
	}
	if status.Rollout.Phase == v1alpha1.RolloutWaiting ||
		slices.ContainsFunc(facts.Instances, func(i v1alpha1.WindowsInstance) bool {
			return i.Status.Failures > 0 && boots(&i, facts.Now)
		}) {
		next = policy.Soonest(next, waitingRetry)
	}
	return next
}

// networkWarning returns a warning if the cluster uses the default VXLAN port on vSphere. There, pods often can't reach
// each other, because vSphere's own overlay uses the same port.
func networkWarning(cluster blueprint.Facts) *contract.Problem {
	if cluster.Platform != contract.PlatformVSphere || cluster.VXLANPort != 0 {
		return nil
	}
	return contract.NewProblem(contract.ReasonVXLANPortDefault,
		"the hybrid network uses the default VXLAN port on vSphere")
}

// missingOn returns the missing programs that nodes of this cluster need, not programs for other networks or platforms.
func missingOn(cluster blueprint.Facts, all []payload.Missing) []payload.Missing {
	return slices.DeleteFunc(slices.Clone(all), func(m payload.Missing) bool {
		part, ok := payload.PartNamed(m.Name)
		return ok && !cluster.Needs(part.Path)
	})
}

func (r *Reconciler) gather(ctx context.Context) (Facts, error) {
	var facts Facts
	instances := &v1alpha1.WindowsInstanceList{}
	if err := r.client.List(ctx, instances, client.InNamespace(r.Namespace),
		client.UnsafeDisableDeepCopy); err != nil {
		return facts, fmt.Errorf("listing instances: %w", err)
	}
	facts.Instances = slices.DeleteFunc(instances.Items, func(i v1alpha1.WindowsInstance) bool {
		return i.Spec.PreflightOnly // its host doesn't join
	})
	if _, err := r.Keys.PrivateKey(ctx); err != nil {
		problem, ok := contract.AsProblem(err)
		if !ok {
			return facts, err
		}
		if problem.Reason != contract.ReasonPrivateKeyMissing || slices.ContainsFunc(facts.Instances,
			func(i v1alpha1.WindowsInstance) bool { return i.Spec.ByItself == nil }) {
			facts.Lacks = append(facts.Lacks, problem)
		}
	}
	facts.Lacks = append(facts.Lacks, r.Desired.Problems()...)
	facts.Troubles = r.Troubles.Problems()
	if desired, cluster, err := r.Desired.Current(ctx); err == nil {
		facts.DesiredRevision = desired.Revision
		facts.Warning = networkWarning(cluster)
		facts.Missing, facts.IsMissingKnown = missingOn(cluster, r.Missing), true
		facts.Troubles = slices.Concat(facts.Troubles, cluster.Troubles)
	}
	if desired, generation, ok := r.Desired.Published(); ok {
		facts.Known, facts.Refused, facts.Kubelet = true, desired.Rejected, desired.KubeletFragment
		facts.Rendered = generation
	}
	list := &corev1.ConfigMap{}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: r.Namespace, Name: contract.InstancesConfigMap}, list)
	if client.IgnoreNotFound(err) != nil {
		return facts, fmt.Errorf("reading %s: %w", contract.InstancesConfigMap, err)
	}
	_, facts.Rejected = inventory.Parse(list)
	return facts, nil
}
