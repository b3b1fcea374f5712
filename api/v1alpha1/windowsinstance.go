package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is the progress of a host. A host that joins passes through the phases in the order below, up to Ready. Each
// phase checks the host first, so the phase can be repeated.
// +kubebuilder:validation:Enum=Pending;Connecting;Preflight;Preparing;Delivering;Bootstrapping;Adopting;HandingOver;Confirming;Ready;Updating;Rebooting;Removing
type Phase string

// Phases of a WindowsInstance.
const (
	PhasePending       Phase = "Pending"       // the join has not begun
	PhaseConnecting    Phase = "Connecting"    // the operator connects, and checks the host key
	PhasePreflight     Phase = "Preflight"     // the operator checks whether the host can become a node
	PhasePreparing     Phase = "Preparing"     // the host gets its name and the feature Containers, and reboots
	PhaseDelivering    Phase = "Delivering"    // the host gets the payload that it lacks
	PhaseBootstrapping Phase = "Bootstrapping" // containerd and kubelet start
	PhaseAdopting      Phase = "Adopting"      // the Node appears, and gets its labels, annotations and cordon
	PhaseHandingOver   Phase = "HandingOver"   // the daemon starts as a service
	PhaseConfirming    Phase = "Confirming"    // the desired revision is applied, and the Ready Node is uncordoned
	PhaseReady         Phase = "Ready"         // the daemon keeps the node in its desired state
	PhaseUpdating      Phase = "Updating"      // the node changes to another revision: see status.activity.step
	PhaseRebooting     Phase = "Rebooting"     // the host reboots: see status.activity.step
	PhaseRemoving      Phase = "Removing"      // the node is drained, the host is cleaned, the Node is deleted
)

// Condition types of a WindowsInstance.
const (
	// ConditionReady is True while the host is a Ready node at its desired revision.
	ConditionReady = "Ready"
	// ConditionReachable is True if the last SSH login succeeded. The operator doesn't probe hosts that have
	// joined, so the result may be old: see the condition's time.
	ConditionReachable = "Reachable"
	// ConditionPreflightPassed is True if the host met every requirement at the last check.
	ConditionPreflightPassed = "PreflightPassed"
	// ConditionProgressing is True while the host joins, is upgraded, rebooted or removed, or its node is not Ready. It
	// is False while the host is paused. If the host waits or fails, the reason says why. The message names the object,
	// the reason's code (such as W203) and the fix.
	ConditionProgressing = "Progressing"
	// ConditionKeyAuthorized is True if the current private key is the key that the host accepted last. It is False
	// if the host refuses the key, and Unknown while the key can't be tried.
	ConditionKeyAuthorized = "KeyAuthorized"
	// ConditionSkewSupported is False while the node's release differs too much from the operator's release. Only
	// another join can then update the node. Otherwise, the condition is absent.
	ConditionSkewSupported = "SkewSupported"
	// ConditionWorkloadsFit is False while the node has pods that can't run there, such as pods for Linux. It is
	// Unknown while the operator can't read all pods of the node. The condition is absent until one of these occurs.
	ConditionWorkloadsFit = "WorkloadsFit"
	// ConditionUpdateFailed is True if the node failed at status.failedRevision and was rolled back. Otherwise, the
	// condition is absent.
	ConditionUpdateFailed = "UpdateFailed"
)

// SourceKind is the kind of object that a WindowsInstance was created from.
// +kubebuilder:validation:Enum=ConfigMap;Machine
type SourceKind string

// Sources of instances. An instance without a source was created by a user.
const (
	SourceConfigMap SourceKind = "ConfigMap"
	SourceMachine   SourceKind = "Machine"
)

// Source is the object that an instance was created from.
type Source struct {
	// Kind of the object.
	Kind SourceKind `json:"kind"`
	// Name of the object. For the ConfigMap, it is the key of the entry.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the object, if it is a Machine. A Machine with the same name but a different UID is a different host.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// RemovalPolicy is what happens to the host when the instance is deleted.
// +kubebuilder:validation:Enum=Clean;Force;Discard
type RemovalPolicy string

// Removal policies.
const (
	// RemovalClean deletes the Node and the instance only when the host is cleaned.
	RemovalClean RemovalPolicy = "Clean"
	// RemovalForce tries once to clean the host, then deletes the Node and the instance. Use it for hosts that no
	// longer exist.
	RemovalForce RemovalPolicy = "Force"
	// RemovalDiscard is for a host that is deleted with its Machine. The operator doesn't contact the host. When the
	// Machine is deleted, the operator deletes the Node.
	RemovalDiscard RemovalPolicy = "Discard"
)

// ByItself says how a host joins by itself.
// +kubebuilder:object:generate=false
type ByItself struct {
	// TokenLifetime is how long the token in the command is valid: from 10 minutes to 24 hours, and 24 hours by
	// default. The token is valid for one join.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10m') && duration(self) <= duration('24h')",message="must be between 10m and 24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +optional
	TokenLifetime metav1.Duration `json:"tokenLifetime,omitempty,omitzero"`
}

// WindowsInstanceSpec is the address of a host, and how to log in to it.
// +kubebuilder:validation:XValidation:rule="self.address == oldSelf.address || has(self.source) && self.source.kind == 'Machine'",message="address is immutable: delete the instance and create another"
// +kubebuilder:validation:XValidation:rule="has(self.byItself) == has(oldSelf.byItself)",message="byItself can't be added or removed: delete the instance and create another"
// +kubebuilder:validation:XValidation:rule="has(self.byItself) || has(self.username) && size(self.username) > 0",message="username is required for a host that the operator reaches over SSH"
// +kubebuilder:validation:XValidation:rule="!has(self.byItself) || !has(self.preflightOnly) || !self.preflightOnly",message="preflightOnly needs SSH: a host that joins by itself is checked when it joins"
// +kubebuilder:validation:XValidation:rule="(has(self.preflightOnly) && self.preflightOnly) == (has(oldSelf.preflightOnly) && oldSelf.preflightOnly)",message="preflightOnly is immutable: delete the instance and create another"
type WindowsInstanceSpec struct {
	// Address is an IPv4 address, or a DNS name that resolves to an IPv4 address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`
	Address string `json:"address"`

	// Port of the SSH server.
	// +kubebuilder:default=22
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	// +optional
	Port int32 `json:"port,omitempty"`

	// Username of a local or domain administrator. It is required, except for a host that joins by itself.
	// +kubebuilder:validation:MaxLength=104
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\"/\\\\[\\\\]:;|=,+*?<>[:cntrl:]]|^ | $')",message="must be a Windows user name"
	// +optional
	Username string `json:"username,omitempty"`

	// ByItself is set for a host that joins by itself: the host reaches the API server, and the operator never connects
	// to the host. The operator publishes the command for the host in the Secret "windows-join-<UID>". Address is then
	// only a name of the host.
	// +optional
	ByItself *ByItself `json:"byItself,omitempty"`

	// HostKey is the expected SSH host key, as "<type> <base64>". If it is empty, the operator pins the key of the
	// first contact in the status.
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:Pattern=`^[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$`
	// +optional
	HostKey string `json:"hostKey,omitempty"`

	// Hostname is the desired host name. If the host has another name, the operator renames and reboots the host before
	// the join. If this field is empty, the host keeps its name.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +optional
	Hostname string `json:"hostname,omitempty"`

	// NodeIP is the IPv4 address of the Node, for hosts with several addresses. By default it is the address of the
	// interface with the default route.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^([0-9]{1,3}[.]){3}[0-9]{1,3}$`
	// +optional
	NodeIP string `json:"nodeIP,omitempty"`

	// ProviderID is the cloud's id of the host. A Node with another id doesn't belong to this host.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ProviderID string `json:"providerID,omitempty"`

	// Addresses are additional names and addresses of the host, as the cloud reports them. The host's serving
	// certificate may contain them.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	Addresses []string `json:"addresses,omitempty"`

	// Source is the object that this instance was created from. If the source is deleted, the operator deletes the
	// instance.
	// +optional
	Source *Source `json:"source,omitempty"`

	// Labels to set on the Node, in addition to the labels of every Windows node.
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(key, !format.qualifiedName().validate(key).hasValue())",message="keys are names of labels, with or without a prefix"
	// +kubebuilder:validation:XValidation:rule="self.all(key, size(self[key]) <= 63)",message="values have at most 63 characters"
	// +optional
	Labels map[string]string `json:"labels,omitempty"`

	// Taints to set on the Node, in addition to os=Windows:NoSchedule.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(t, size(t.key) > 0 && size(t.key) <= 317 && (!has(t.value) || size(t.value) <= 63) && t.effect in ['NoSchedule', 'PreferNoSchedule', 'NoExecute'])",message="a taint has a key, a value of at most 63 characters, and an effect"
	// +listType=atomic
	// +optional
	Taints []corev1.Taint `json:"taints,omitempty"`

	// Paused stops the operator's work on this host. The daemon continues to repair the node.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// PreflightOnly checks the host once, without changes. The host doesn't join. The condition PreflightPassed
	// shows the result. After an hour, the operator deletes the instance.
	// +optional
	PreflightOnly bool `json:"preflightOnly,omitempty"`

	// RemovalPolicy is Clean by default. Use Force for a host that no longer exists. Discard is for a host that is
	// deleted with its Machine.
	// +kubebuilder:default=Clean
	// +optional
	RemovalPolicy RemovalPolicy `json:"removalPolicy,omitempty"`
}

// PhaseTime is the duration of a phase.
type PhaseTime struct {
	// Phase of the join or removal.
	Phase Phase `json:"phase"`
	// StartTime of the phase in the current attempt.
	StartTime metav1.MicroTime `json:"startTime"`
	// Milliseconds is the duration of the phase. It is absent while the phase continues.
	// +optional
	Milliseconds *int64 `json:"milliseconds,omitempty"`
}

// HostInfo holds the facts that preflight read from the host.
type HostInfo struct {
	// Hostname in lower case, without a domain.
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`
	// MachineID is the MachineGuid of the Windows installation.
	// +kubebuilder:validation:MaxLength=128
	MachineID string `json:"machineID,omitempty"`
	// Windows is the product and the build, such as "Windows Server 2022 Datacenter 10.0.20348.2340".
	// +kubebuilder:validation:MaxLength=320
	Windows string `json:"windows,omitempty"`
	// NodeIP is the IPv4 address of the interface with the default route.
	// +kubebuilder:validation:MaxLength=45
	NodeIP string `json:"nodeIP,omitempty"`
	// Address is the IP address at which the operator reached the host with the expected host key. When the
	// operator decides on serving certificates, this address belongs to this host even if the kubelet of another
	// host reports it.
	// +kubebuilder:validation:MaxLength=45
	// +optional
	Address string `json:"address,omitempty"`
	// Time is when preflight read these facts. If two hosts were reached at the same address and port, the host
	// with the later time owns the address.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// KeyRefusal records that a host refused a private key.
type KeyRefusal struct {
	// PublicKeyHash is the hex SHA-256 of the key's line in authorized_keys.
	// +kubebuilder:validation:MaxLength=64
	PublicKeyHash string `json:"publicKeyHash"`
	// Since is when the host first refused the key.
	Since metav1.Time `json:"since"`
	// Time is when the host last refused the key.
	Time metav1.Time `json:"time"`
}

// Slot is a host's request for a slot in the rollout budget, or its slot.
type Slot struct {
	// Since is when the host got its slot. It is absent while the host waits.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// HasSlot reports whether the host has a slot in the rollout budget.
func (s *WindowsInstanceStatus) HasSlot() bool {
	return s.Slot != nil && s.Slot.Since != nil
}

// Joined reports whether the host has been a Ready node.
func (s *WindowsInstanceStatus) Joined() bool { return s.HeldRevision != "" }

// Reason returns why the host waits or fails: the reason of the condition Progressing.
func (s *WindowsInstanceStatus) Reason() string { return s.progressing().Reason }

// Message returns the message of the condition Progressing.
func (s *WindowsInstanceStatus) Message() string { return s.progressing().Message }

func (s *WindowsInstanceStatus) progressing() (found metav1.Condition) {
	for _, c := range s.Conditions {
		if c.Type == ConditionProgressing {
			found = c
		}
	}
	return found
}

// Purpose returns the reason why the host requests a slot: the kind of its activity, its removal or another join.
func (i *WindowsInstance) Purpose() ActivityKind {
	switch {
	case !i.DeletionTimestamp.IsZero():
		return ActivityRemove
	case i.Status.Activity != nil:
		return i.Status.Activity.Kind
	}
	return ActivityJoin
}

// Step is the progress of an activity.
// +kubebuilder:validation:Enum=Staging;Waiting;Draining;Switching;Verifying;RollingBack
type Step string

// Steps, in their order. A reboot has no Staging and no RollingBack.
const (
	StepStaging     Step = "Staging"     // the daemon fetches the payload; the node stays in service
	StepWaiting     Step = "Waiting"     // for a slot, a window, or the next try; the node stays in service
	StepDraining    Step = "Draining"    // the node has its slot, is cordoned, and its pods are evicted
	StepSwitching   Step = "Switching"   // the daemon applies the revision, or reboots the host
	StepVerifying   Step = "Verifying"   // the node must stay Ready for the settling time
	StepRollingBack Step = "RollingBack" // verification failed: the daemon applies the previous revision
)

// ActivityKind is the kind of an activity.
// +kubebuilder:validation:Enum=Upgrade;Reboot
type ActivityKind string

// Kinds of an activity.
const (
	// ActivityUpgrade changes the node to another revision.
	ActivityUpgrade ActivityKind = "Upgrade"
	// ActivityReboot reboots the host.
	ActivityReboot ActivityKind = "Reboot"
	// ActivityJoin and ActivityRemove are purposes of a slot only. status.activity does not have them.
	ActivityJoin   ActivityKind = "Join"
	ActivityRemove ActivityKind = "Remove"
)

// Activity is an upgrade or a reboot of a node that has joined. A node has one activity at a time.
type Activity struct {
	// Kind of the activity.
	Kind ActivityKind `json:"kind"`
	// Step is the current step.
	Step Step `json:"step"`
	// Since is when the activity reached this step. In the step Verifying of an upgrade, it is when the operator
	// requested the revision from the daemon.
	Since metav1.Time `json:"since"`
	// Tries counts drains that took too long, failed switches, and hosts that didn't reboot.
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// NextTime is when the operator tries again.
	// +optional
	NextTime *metav1.Time `json:"nextTime,omitempty"`
	// Revision is the target revision of an upgrade.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Revision string `json:"revision,omitempty"`
	// Reason why the last attempt failed, as a word.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says why the last attempt failed.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
	// BootID identifies the boot before the reboot. A different boot ID proves the reboot.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	BootID string `json:"bootID,omitempty"`
}

// Begun reports whether the disruption has begun: the operator drains, switches, reboots, verifies or rolls back
// the node.
func (a *Activity) Begun() bool {
	return a != nil && a.Step != StepStaging && a.Step != StepWaiting
}

// Upgrade returns the activity if it is an upgrade, else nil.
func (s *WindowsInstanceStatus) Upgrade() *Activity { return s.activity(ActivityUpgrade) }

// Reboot returns the activity if it is a reboot, else nil.
func (s *WindowsInstanceStatus) Reboot() *Activity { return s.activity(ActivityReboot) }

// IsRequested reports whether the target revision of the upgrade was requested from the host.
func (s *WindowsInstanceStatus) IsRequested() bool {
	update := s.Upgrade()
	return update != nil && update.Revision == s.DesiredRevision
}

func (s *WindowsInstanceStatus) activity(kind ActivityKind) *Activity {
	if s.Activity == nil || s.Activity.Kind != kind {
		return nil
	}
	return s.Activity
}

// WindowsInstanceStatus is the state of the host. If the host is stuck, the status says what to do.
type WindowsInstanceStatus struct {
	// Phase of the host.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Failures counts failed attempts since the last success.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// NodeName is the name of this host's Node. It is set when preflight has read the host name and no other
	// instance has this name.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// NodeUID is the UID of the host's Node. If no Node of this name existed when the host received its bootstrap
	// token, NodeUID is empty. In this case, the operator adopts a new Node of this name even if only the host itself
	// reports the Node's address.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	NodeUID string `json:"nodeUID,omitempty"`
	// NodeMarks are the labels and taints that the operator set on the Node because of the spec: the keys of the
	// labels, and the taints as "<key>:<effect>". If the spec loses one of them, the operator removes it from the Node.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	NodeMarks []string `json:"nodeMarks,omitempty"`
	// BootstrapCredentials are the ids of the bootstrap tokens of the current join, newest last. kubelet needs one of
	// these tokens to request its first certificate. The ids are not secret. If the list has an id and the phase isn't
	// Confirming, the host's daemon is stopped.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	BootstrapCredentials []string `json:"bootstrapCredentials,omitempty"`
	// HostKey is the SSH host key pinned at first contact, as "<type> <base64>". For a host that joins by
	// itself, it is "x509" and the digest of the key in the host's first certificate.
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	HostKey string `json:"hostKey,omitempty"`
	// PublicKeyHash identifies the key that the host accepted last: the hex SHA-256 of its line in authorized_keys.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	PublicKeyHash string `json:"publicKeyHash,omitempty"`
	// KeyRefusal records that the host refused a key. It is absent when the host has accepted the key.
	// +optional
	KeyRefusal *KeyRefusal `json:"keyRefusal,omitempty"`
	// Slot is the host's slot in the rollout budget, or its request for a slot. It is absent if the host has neither.
	// +optional
	Slot *Slot `json:"slot,omitempty"`
	// Activity is a running or waiting upgrade or reboot. It is absent if the node has its revision and no reboot
	// is requested.
	// +optional
	Activity *Activity `json:"activity,omitempty"`
	// FailedRevision is the revision of the node's last failed upgrade. The condition UpdateFailed says why. When the
	// node is verified at a new revision, the operator removes the field and the condition.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	FailedRevision string `json:"failedRevision,omitempty"`
	// Host holds the facts that preflight read from the host.
	// +optional
	Host *HostInfo `json:"host,omitempty"`
	// Revision is the revision that the daemon reports as applied.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Revision string `json:"revision,omitempty"`
	// DesiredRevision is the revision that the operator last requested from the daemon. A host that waits for a
	// slot, or that was rolled back, keeps this revision even if a newer revision is published.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	DesiredRevision string `json:"desiredRevision,omitempty"`
	// HeldRevision is the last verified revision of the node. If another revision fails, the node rolls back to
	// this revision. The field is empty until the host has joined.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	HeldRevision string `json:"heldRevision,omitempty"`
	// Phases of the current attempt, with their durations.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Phases []PhaseTime `json:"phases,omitempty"`
	// Conditions are Ready, Reachable, PreflightPassed, Progressing, KeyAuthorized, SkewSupported, WorkloadsFit and
	// UpdateFailed.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WindowsInstance is a Windows host that is, or will become, a node.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wininst,categories=windows
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.kind`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Progressing")].message`
type WindowsInstance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WindowsInstanceSpec `json:"spec"`
	// +optional
	Status WindowsInstanceStatus `json:"status,omitempty"`
}

// WindowsInstanceList is a list of WindowsInstance.
// +kubebuilder:object:root=true
type WindowsInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WindowsInstance `json:"items"`
}
