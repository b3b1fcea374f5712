package cloud

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// instanceState is the annotation with the instance state of the cloud. The machine API writes it.
const instanceState = "machine.openshift.io/instance-state"

// machines moves Machines through their phases.
type machines struct {
	client.Client
	// live reads without a cache.
	live    client.Reader
	compute *compute
}

// Reconcile executes the next step of one Machine.
func (m *machines) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	machine := &machinev1beta1.Machine{}
	if err := m.Get(ctx, request.NamespacedName, machine); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !machine.DeletionTimestamp.IsZero() {
		return m.retire(ctx, machine)
	}
	if ptr.Deref(machine.Status.Phase, "") == machinev1beta1.PhaseFailed {
		return reconcile.Result{}, nil // a failed Machine can only be deleted
	}
	err := m.advance(ctx, machine)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{RequeueAfter: 50 * time.Millisecond}, nil
	}
	return reconcile.Result{}, err
}

func (m *machines) advance(ctx context.Context, machine *machinev1beta1.Machine) error {
	if !controllerutil.ContainsFinalizer(machine, machinev1beta1.MachineFinalizer) {
		patch := client.MergeFrom(machine.DeepCopy())
		controllerutil.AddFinalizer(machine, machinev1beta1.MachineFinalizer)
		if err := m.Patch(ctx, machine, patch); err != nil {
			return fmt.Errorf("putting the finalizer on machine %s: %w", machine.Name, err)
		}
	}
	instance, ok := m.compute.describe(machine.UID)
	if !ok {
		return m.launch(ctx, machine)
	}
	if err := m.identify(ctx, machine, instance); err != nil {
		return err
	}
	node, err := m.nodeOf(ctx, instance)
	if err != nil {
		return err
	}
	return m.status(ctx, machine, func(status *machinev1beta1.MachineStatus) {
		report(status, machine, instance, node, m.compute.options.Platform)
	})
}

// launch creates the instance of a new Machine.
func (m *machines) launch(ctx context.Context, machine *machinev1beta1.Machine) error {
	if machine.Spec.ProviderID != nil || len(machine.Status.Addresses) > 0 {
		return m.fail(ctx, machine, machinev1beta1.UpdateMachineError, "Can't find created instance.")
	}
	userData, err := m.userData(ctx, machine)
	if err != nil {
		return m.fail(ctx, machine, machinev1beta1.InvalidConfigurationMachineError, err.Error())
	}
	err = m.status(
		ctx, machine, func(
			status *machinev1beta1.MachineStatus) {
			status.Phase = ptr.To(machinev1beta1.PhaseProvisioning)
		})
	if err != nil {
		return err
	}
	m.compute.launch(ctx, machine, userData)
	return nil
}

// userData reads the secret in the provider spec of a Machine. The field has the same name on all platforms.
func (m *machines) userData(ctx context.Context, machine *machinev1beta1.Machine) (string, error) {
	spec := struct {
		UserDataSecret *struct {
			Name string `json:"name"`
		} `json:"userDataSecret"`
	}{}
	if raw := machine.Spec.ProviderSpec.Value; raw != nil {
		if err := json.Unmarshal(raw.Raw, &spec); err != nil {
			return "", fmt.Errorf("reading the provider spec: %w", err)
		}
	}
	if spec.UserDataSecret == nil {
		return "", nil
	}
	secret := &corev1.Secret{}
	if err := m.live.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: spec.UserDataSecret.Name},
		secret); err != nil {
		return "", fmt.Errorf("reading user data: %w", err)
	}
	data, ok := secret.Data["userData"]
	if !ok {
		return "", fmt.Errorf("reading user data: secret %s has no key userData", secret.Name)
	}
	return string(data), nil
}

// identify writes the instance's provider ID and state to the Machine, as the machine API does.
func (m *machines) identify(ctx context.Context, machine *machinev1beta1.Machine, instance description) error {
	wanted := machine.DeepCopy()
	if instance.fault != FaultNoProviderID {
		wanted.Spec.ProviderID = ptr.To(instance.providerID)
	}
	metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, instanceState, "running")
	if ptr.Equal(wanted.Spec.ProviderID, machine.Spec.ProviderID) && machine.Annotations[instanceState] != "" {
		return nil
	}
	status := machine.Status
	if err := m.Patch(ctx, wanted, client.MergeFrom(machine)); err != nil {
		return fmt.Errorf("writing the provider ID of machine %s: %w", machine.Name, err)
	}
	wanted.DeepCopyInto(machine)
	machine.Status = status
	return nil
}

// report fills in the status of a Machine that has an instance.
func report(status *machinev1beta1.MachineStatus, machine *machinev1beta1.Machine, instance description,
	node *corev1.Node, platform configv1.PlatformType) {
	if instance.address.IsValid() && instance.fault != FaultNoAddress {
		status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: instance.address.String()},
			{Type: corev1.NodeInternalDNS, Address: NodeName(platform, machine.Name, instance.address)},
			{Type: corev1.NodeInternalDNS, Address: machine.Name + ".lab.example"},
			{Type: corev1.NodeHostName, Address: machine.Name + ".lab.example"},
		}
	}
	if len(status.Addresses) > 0 || machine.Spec.ProviderID != nil && instance.address.IsValid() {
		status.Phase = ptr.To(machinev1beta1.PhaseProvisioned)
	}
	status.NodeRef = nil
	if node != nil {
		status.NodeRef = &corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID}
		status.Phase = ptr.To(machinev1beta1.PhaseRunning)
	}
}

// nodeOf finds the Node with the provider ID or the address of an instance.
func (m *machines) nodeOf(ctx context.Context, instance description) (*corev1.Node, error) {
	list := &corev1.NodeList{}
	if err := m.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	at := slices.IndexFunc(list.Items, func(n corev1.Node) bool { return n.Spec.ProviderID == instance.providerID })
	if at < 0 && instance.address.IsValid() {
		at = slices.IndexFunc(list.Items, func(n corev1.Node) bool {
			return n.Spec.ProviderID == "" && internalIP(&n) == instance.address.String()
		})
	}
	if at < 0 {
		return nil, nil //nolint:nilnil // an instance has no Node until its kubelet registers
	}
	return &list.Items[at], nil
}

// internalIP returns the internal IP of a Node, or an empty string.
func internalIP(node *corev1.Node) string {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			return address.Address
		}
	}
	return ""
}

func (m *machines) fail(ctx context.Context, machine *machinev1beta1.Machine, reason machinev1beta1.MachineStatusError,
	message string) error {
	return m.status(ctx, machine, func(status *machinev1beta1.MachineStatus) {
		status.Phase, status.ErrorReason, status.ErrorMessage = ptr.To(machinev1beta1.PhaseFailed), &reason, &message
	})
}

// The method status writes a Machine's status if it has changed.
func (m *machines) status(ctx context.Context, machine *machinev1beta1.Machine,
	edit func(*machinev1beta1.MachineStatus)) error {
	wanted := machine.DeepCopy()
	edit(&wanted.Status)
	if equal(wanted.Status, machine.Status) {
		return nil
	}
	wanted.Status.LastUpdated = ptr.To(metav1.Now())
	if err := m.Status().Patch(ctx, wanted, client.MergeFrom(machine)); err != nil {
		return fmt.Errorf("writing the status of machine %s: %w", machine.Name, err)
	}
	return nil
}

var _ reconcile.Reconciler = (*machines)(nil)
