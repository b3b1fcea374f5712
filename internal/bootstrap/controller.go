// Package bootstrap is a bootstrap provider for Cluster API. For each WindowsConfig, it creates a WindowsInstance in
// the workload cluster. The operator there publishes a command for the host. The provider gives this command to the
// infrastructure provider, and the host runs it at its first boot.
//
// The provider runs in the management cluster. It connects to every workload cluster with the kubeconfig in the Secret
// <cluster>-kubeconfig, even if the workload cluster is the management cluster itself. It implements the contract
// v1beta2 of Cluster API for bootstrap providers.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/windows-nodes/wmco/api/bootstrap/v1alpha1"
	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// +kubebuilder:rbac:groups=bootstrap.windowsmachineconfig.openshift.io,resources=windowsconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.windowsmachineconfig.openshift.io,resources=windowsconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters;machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create

const (
	// finalizer keeps a deleted WindowsConfig until the provider has deleted the WindowsInstance.
	finalizer = contract.Prefix + "bootstrap"
	// retry is how often the provider reads the Cluster and its workload cluster until the host is a Ready node.
	retry = 10 * time.Second
	// refresh is how often the provider copies the state of a Ready node.
	refresh = 5 * time.Minute
	// workers is high, because a worker mostly waits for the network.
	workers = 10
)

// Reasons of conditions. If the condition InstanceReady is False, it usually has the reason of the WindowsInstance.
const (
	reasonDataCreated      = "DataSecretCreated"
	reasonWaiting          = "WaitingForCluster"
	reasonClusterUnusable  = "ClusterNotReachable"
	reasonCommandAwaited   = "WaitingForCommand"
	reasonNameTaken        = "NameTaken"
	reasonInstanceMissing  = "InstanceNotFound"
	reasonVersionMatches   = "SameMinor"
	reasonVersionDiffers   = "OtherMinor"
	reasonInstanceReported = "Reported"
)

// Names in Cluster API. The provider reads only five fields of Cluster API's objects, so it doesn't import the Go
// module of Cluster API.
const (
	clusterAPIGroup   = "cluster.x-k8s.io"
	clusterNameLabel  = clusterAPIGroup + "/cluster-name"
	pausedAnnotation  = clusterAPIGroup + "/paused"
	clusterSecretType = clusterAPIGroup + "/secret"
)

func ofKind(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: clusterAPIGroup, Version: "v1beta2", Kind: kind})
	return object
}

// Reconciler reconciles WindowsConfigs. It gives Machines their bootstrap data.
type Reconciler struct {
	client client.Client
	// connect returns a client of a workload cluster. `cluster` is the object that describes the workload cluster.
	connect func(ctx context.Context, management client.Client, cluster client.Object) (client.Client, error)
	// namespace is the operator's namespace in every workload cluster.
	namespace string
}

// Setup adds the controller to a manager. namespace is the operator's namespace in the workload clusters.
func Setup(mgr ctrl.Manager, namespace string) error {
	r := &Reconciler{client: mgr.GetClient(), connect: connect, namespace: namespace}
	err := ctrl.NewControllerManagedBy(mgr).Named("windowsconfig").For(&bootstrapv1.WindowsConfig{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of WindowsConfigs: %w", err)
	}
	return nil
}

// Reconcile does the next step for a WindowsConfig and saves the status.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	config := &bootstrapv1.WindowsConfig{}
	if err := r.client.Get(ctx, request.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	before := config.DeepCopy()
	after, err := r.step(ctx, config)
	if !equality.Semantic.DeepEqual(before.Status, config.Status) {
		// No other client writes the status, so the patch needs no resource version.
		saved := r.client.Status().Patch(ctx, config, client.MergeFrom(before))
		err = errors.Join(err, client.IgnoreNotFound(saved))
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

// step does the next step for a WindowsConfig and returns the delay until the next reconcile. It does nothing until
// Cluster API has set the label with the name of the Cluster.
func (r *Reconciler) step(ctx context.Context, config *bootstrapv1.WindowsConfig) (time.Duration, error) {
	cluster := ofKind("Cluster")
	name := client.ObjectKey{Namespace: config.Namespace, Name: config.Labels[clusterNameLabel]}
	err := r.client.Get(ctx, name, cluster)
	isGone := apierrors.IsNotFound(err)
	if err != nil && !isGone {
		return 0, fmt.Errorf("reading Cluster %s: %w", name, err)
	}
	isGone = isGone || cluster.GetDeletionTimestamp() != nil
	_, isPaused := config.Annotations[pausedAnnotation]
	isClusterPaused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	hasControlPlane, _, _ := unstructured.NestedBool(cluster.Object, "status", "initialization",
		"controlPlaneInitialized")
	isDeleted, hasFinalizer := !config.DeletionTimestamp.IsZero(), controllerutil.ContainsFinalizer(config, finalizer)
	switch {
	case isPaused || isClusterPaused:
		return retry, nil
	case isDeleted && (isGone || !hasFinalizer): // the host is deleted together with its cluster
		return 0, r.release(ctx, config)
	case isGone:
		return retry, nil
	case !isDeleted && !hasControlPlane && config.Status.DataSecretName == "":
		notReady(config, reasonWaiting, "the control plane of Cluster "+cluster.GetName()+" is not initialized yet")
		return retry, nil
	case !isDeleted && !hasFinalizer:
		before := config.DeepCopy()
		controllerutil.AddFinalizer(config, finalizer)
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return 0, r.client.Patch(ctx, config, patch) // this patch causes an event, which starts the next reconcile
	}
	return r.inWorkload(ctx, config, cluster)
}

// inWorkload creates, follows or deletes the WindowsInstance in the workload cluster.
func (r *Reconciler) inWorkload(ctx context.Context, config *bootstrapv1.WindowsConfig,
	cluster client.Object) (time.Duration, error) {
	workload, err := r.connect(ctx, r.client, cluster)
	if err != nil {
		return unreachable(config, err)
	}
	instance := &v1alpha1.WindowsInstance{}
	err = workload.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: config.Name}, instance)
	isMissing := apierrors.IsNotFound(err)
	if err != nil && !isMissing {
		return unreachable(config, fmt.Errorf("reading WindowsInstance %s/%s: %w", r.namespace, config.Name, err))
	}
	isOurs := instance.Annotations[contract.BootstrapConfigAnnotation] == string(config.UID)
	switch {
	case !config.DeletionTimestamp.IsZero():
		if isOurs {
			err = discard(ctx, workload, instance)
		}
		if client.IgnoreNotFound(err) != nil {
			return unreachable(config, fmt.Errorf("deleting WindowsInstance %s: %w", config.Name, err))
		}
		return 0, r.release(ctx, config)
	case isOurs && config.Status.DataSecretName != "":
		return r.follow(ctx, workload, config, &instance.Status)
	case config.Status.DataSecretName != "":
		report(config, bootstrapv1.ConditionInstanceReady, metav1.ConditionFalse, reasonInstanceMissing,
			"Cluster "+cluster.GetName()+" has no WindowsInstance "+config.Name+" for this Machine; delete the Machine")
		return refresh, nil
	case isMissing:
		instance = &v1alpha1.WindowsInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.namespace, Name: config.Name,
				Annotations: map[string]string{contract.BootstrapConfigAnnotation: string(config.UID)}},
			Spec: v1alpha1.WindowsInstanceSpec{Address: config.Name, ByItself: &config.Spec.ByItself}}
		if err = workload.Create(ctx, instance); err != nil {
			return unreachable(config, fmt.Errorf("creating WindowsInstance %s/%s: %w", r.namespace, config.Name, err))
		}
	case !isOurs:
		notReady(config, reasonNameTaken, fmt.Sprintf("Cluster %s has another WindowsInstance %s; if it belongs to "+
			"an earlier Machine, wait, otherwise delete this Machine", cluster.GetName(), config.Name))
		return retry, nil
	}
	return r.prepare(ctx, workload, config, cluster, instance.UID)
}

// prepare waits until the operator has published the command for a WindowsInstance, and creates the bootstrap data.
func (r *Reconciler) prepare(ctx context.Context, workload client.Client, config *bootstrapv1.WindowsConfig,
	cluster client.Object, instance types.UID) (time.Duration, error) {
	join := &corev1.Secret{}
	key := client.ObjectKey{Namespace: r.namespace, Name: contract.JoinSecretPrefix + string(instance)}
	if err := workload.Get(ctx, key, join); client.IgnoreNotFound(err) != nil {
		return unreachable(config, fmt.Errorf("reading the command of WindowsInstance %s: %w", config.Name, err))
	}
	command := string(join.Data[contract.JoinCommandField])
	if command == "" {
		notReady(config, reasonCommandAwaited, "the operator of Cluster "+cluster.GetName()+" has not published the "+
			"command of this host yet; check that it runs")
		return time.Second, nil
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: config.Namespace, Name: config.Name,
			Labels: map[string]string{clusterNameLabel: cluster.GetName()},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(config, bootstrapv1.GroupVersion().WithKind("WindowsConfig"))}},
		Type: clusterSecretType,
		Data: map[string][]byte{"value": []byte(userData(config.Spec.Format, command)),
			"format": []byte(config.Spec.Format)},
	}
	err := r.client.Create(ctx, secret)
	if apierrors.IsAlreadyExists(err) {
		err = r.client.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	}
	if err != nil {
		return 0, fmt.Errorf("creating secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if !metav1.IsControlledBy(secret, config) {
		notReady(config, reasonNameTaken, "there is another Secret "+config.Name+"; if it belongs to an earlier "+
			"Machine, wait, otherwise delete this Machine")
		return retry, nil
	}
	config.Status.DataSecretName = config.Name
	config.Status.Initialization.DataSecretCreated = true
	report(config, bootstrapv1.ConditionConfigReady, metav1.ConditionTrue, reasonDataCreated, "")
	return retry, nil
}

// userData returns the bootstrap data: a script with the command, in the format of the program that runs the script at
// the first boot. If the command fails, the script ends and doesn't write the sentinel file of Cluster API.
func userData(format bootstrapv1.UserDataFormat, command string) string {
	script := command + `
New-Item -ItemType Directory -Force -Path C:\run\cluster-api | Out-Null
Set-Content -LiteralPath C:\run\cluster-api\bootstrap-success.complete -Value success
`
	switch format {
	case bootstrapv1.FormatEC2Launch:
		return "<powershell>\n" + script + "</powershell>\n"
	case bootstrapv1.FormatPlain:
		return script
	}
	return "#ps1_sysnative\n" + script
}

// follow copies the state of the WindowsInstance to the WindowsConfig, and sets the provider ID of the Node.
func (r *Reconciler) follow(ctx context.Context, workload client.Client, config *bootstrapv1.WindowsConfig,
	status *v1alpha1.WindowsInstanceStatus) (time.Duration, error) {
	isReady := meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady)
	if isReady {
		report(config, bootstrapv1.ConditionInstanceReady, metav1.ConditionTrue, reasonInstanceReported, "")
	} else if status.Reason() != "" {
		report(config, bootstrapv1.ConditionInstanceReady, metav1.ConditionFalse, status.Reason(), status.Message())
	}
	isComplete, err := r.identify(ctx, workload, config, status.NodeName, status.NodeUID)
	if isReady && isComplete {
		return refresh, err
	}
	return retry, err
}

// identify compares the version of a node with the version that the Machine requests. It also copies the provider ID
// from the Machine to the Node, because Cluster API finds Nodes by their provider IDs. Exception: it copies nothing if
// the Node has a provider ID, or if a cloud provider will set one.
func (r *Reconciler) identify(ctx context.Context, workload client.Client, config *bootstrapv1.WindowsConfig,
	name, uid string) (isComplete bool, err error) {
	owner, machine := metav1.GetControllerOf(config), ofKind("Machine")
	if owner == nil || uid == "" {
		return false, nil
	}
	err = r.client.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: owner.Name}, machine)
	if err != nil || machine.GetUID() != owner.UID {
		return false, client.IgnoreNotFound(err)
	}
	providerID, _, _ := unstructured.NestedString(machine.Object, "spec", "providerID")
	wanted, _, _ := unstructured.NestedString(machine.Object, "spec", "version")
	node := &corev1.Node{}
	if err = workload.Get(ctx, client.ObjectKey{Name: name}, node); err != nil || string(node.UID) != uid {
		return false, client.IgnoreNotFound(err)
	}
	compare(config, wanted, node.Status.NodeInfo.KubeletVersion)
	isCloudDue := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudTaint })
	if isCloudDue || node.Spec.ProviderID != "" || providerID == "" {
		return node.Spec.ProviderID != "", nil
	}
	before := node.DeepCopy()
	node.Spec.ProviderID = providerID
	err = workload.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return false, fmt.Errorf("setting the provider ID of node %s: %w", name, err)
	}
	return true, nil
}

// compare sets the condition VersionMatches: it is True if kubelet has the minor version that the Machine requests.
// kubelet's version comes from the payload of the operator in the workload cluster.
func compare(config *bootstrapv1.WindowsConfig, wanted, reported string) {
	w, err := version.ParseGeneric(wanted)
	if err != nil {
		return // the Machine requests no version
	}
	r, err := version.ParseGeneric(reported)
	if err == nil && r.Major() == w.Major() && r.Minor() == w.Minor() {
		report(config, bootstrapv1.ConditionVersionMatches, metav1.ConditionTrue, reasonVersionMatches, "")
		return
	}
	report(config, bootstrapv1.ConditionVersionMatches, metav1.ConditionFalse, reasonVersionDiffers, fmt.Sprintf(
		"the Machine has the version %.32s, and the operator's payload has kubelet %.32s; use an operator whose "+
			"payload has this minor version, or set the Machine's version to that of the payload", wanted, reported))
}

// cloudTaint is the taint that a Node has until the cloud provider has initialized the Node.
const cloudTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// discard deletes a WindowsInstance without waiting for its host, which is already destroyed.
func discard(ctx context.Context, workload client.Client, instance *v1alpha1.WindowsInstance) error {
	before := instance.DeepCopy()
	instance.Spec.RemovalPolicy = v1alpha1.RemovalDiscard
	if err := workload.Patch(ctx, instance, client.MergeFrom(before)); err != nil {
		return err
	}
	return workload.Delete(ctx, instance, client.Preconditions{UID: &instance.UID})
}

func (r *Reconciler) release(ctx context.Context, config *bootstrapv1.WindowsConfig) error {
	before := config.DeepCopy()
	if !controllerutil.RemoveFinalizer(config, finalizer) {
		return nil
	}
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	return client.IgnoreNotFound(r.client.Patch(ctx, config, patch))
}

// `unreachable` sets a condition that says that the workload cluster can't be used. The provider then tries again.
func unreachable(config *bootstrapv1.WindowsConfig, err error) (time.Duration, error) {
	if config.Status.DataSecretName != "" && config.DeletionTimestamp.IsZero() { // the bootstrap data stays usable
		report(config, bootstrapv1.ConditionInstanceReady, metav1.ConditionUnknown, reasonClusterUnusable, err.Error())
	} else {
		notReady(config, reasonClusterUnusable, err.Error())
	}
	return retry, nil
}

func notReady(config *bootstrapv1.WindowsConfig, reason, message string) {
	report(config, bootstrapv1.ConditionConfigReady, metav1.ConditionFalse, reason, message)
}

func report(config *bootstrapv1.WindowsConfig, kind string, state metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&config.Status.Conditions, metav1.Condition{Type: kind, Status: state, Reason: reason,
		Message: fmt.Sprintf("%.32000s", message), ObservedGeneration: config.Generation})
}
