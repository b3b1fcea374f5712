package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Phase is how far a host is. Phases before Ready come in the order below; each looks first, so
// repeating one does no harm.
// +kubebuilder:validation:Enum=Pending;Connecting;Preflight;Preparing;Delivering;Bootstrapping;Adopting;HandingOver;Confirming;Ready;Updating;Rebooting;Removing
type Phase string

// Phases of a WindowsInstance.
const (
	PhasePending       Phase = "Pending"       // a join, for the first time or again, has yet to begin
	PhaseConnecting    Phase = "Connecting"    // SSH connection and host key
	PhasePreflight     Phase = "Preflight"     // is the host fit to be a node
	PhasePreparing     Phase = "Preparing"     // host name, Windows features, reboot
	PhaseDelivering    Phase = "Delivering"    // missing payload
	PhaseBootstrapping Phase = "Bootstrapping" // containerd and kubelet
	PhaseAdopting      Phase = "Adopting"      // its Node appears: labels, annotations, cordon
	PhaseHandingOver   Phase = "HandingOver"   // the daemon runs as a service
	PhaseConfirming    Phase = "Confirming"    // desired revision applied, Node Ready, uncordon
	PhaseReady         Phase = "Ready"         // a node, kept in order by the daemon
	PhaseUpdating      Phase = "Updating"      // the node is taken to another revision: see status.activity.step
	PhaseRebooting     Phase = "Rebooting"     // the node is rebooted: see status.activity.step
	PhaseRemoving      Phase = "Removing"      // drain, clean the host, delete the Node
)

// Condition types of a WindowsInstance.
const (
	// ConditionReady is True while the host is a Ready node at its desired revision.
	ConditionReady = "Ready"
	// ConditionReachable is True when the last SSH login succeeded. Joined hosts are not probed, so
	// it may be old: see its time.
	ConditionReachable = "Reachable"
	// ConditionPreflightPassed is True when the host met every requirement at the last check.
	ConditionPreflightPassed = "PreflightPassed"
	// ConditionProgressing is True while the host is not as it is to be and is not paused: it joins, is upgraded,
	// rebooted or removed, or its node is not Ready. The reason says what it waits for, if it does.
	ConditionProgressing = "Progressing"
	// ConditionKeyAuthorized is True while the present private key is the one that the host
	// accepted last, False when the host refuses it, and Unknown while it can't be tried.
	ConditionKeyAuthorized = "KeyAuthorized"
	// ConditionSkewSupported is False while the node's release is too far from the operator's to
	// upgrade or downgrade it without SSH. Other nodes don't have it.
	ConditionSkewSupported = "SkewSupported"
	// ConditionWorkloadsFit is False while pods are on the node that can't run there, such as pods for
	// Linux, and Unknown while its pods can't all be read. A node of which neither was ever found does
	// not have it.
	ConditionWorkloadsFit = "WorkloadsFit"
)

// SourceKind says what a WindowsInstance was made from.
// +kubebuilder:validation:Enum=ConfigMap;Machine
type SourceKind string

// Sources of instances. An instance without a source was created by a user.
const (
	SourceConfigMap SourceKind = "ConfigMap"
	SourceMachine   SourceKind = "Machine"
)

// Source is the object that an instance was made from.
type Source struct {
	// Kind of the object.
	Kind SourceKind `json:"kind"`
	// Name of the object; for the ConfigMap, the key of the entry.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the object, for a Machine: another Machine of the same name is another host.
	// +optional
	UID types.UID `json:"uid,omitempty"`
}

// RemovalPolicy says what happens to the host when the instance is deleted.
// +kubebuilder:validation:Enum=Clean;Force;Discard
type RemovalPolicy string

// Removal policies.
const (
	// RemovalClean waits until the host is cleaned.
	RemovalClean RemovalPolicy = "Clean"
	// RemovalForce tries once to clean the host, then deletes the Node and the instance. For hosts
	// that are gone for good.
	RemovalForce RemovalPolicy = "Force"
	// RemovalDiscard is for a host that is deleted with its Machine: it is not contacted, and its
	// Node is deleted when the Machine is gone.
	RemovalDiscard RemovalPolicy = "Discard"
)

// WindowsInstanceSpec says where a host is and how to reach it.
// +kubebuilder:validation:XValidation:rule="self.address == oldSelf.address || has(self.source) && self.source.kind == 'Machine'",message="address is immutable: delete the instance and create another"
// +kubebuilder:validation:XValidation:rule="(has(self.preflightOnly) && self.preflightOnly) == (has(oldSelf.preflightOnly) && oldSelf.preflightOnly)",message="preflightOnly is immutable: delete the instance and create another"
type WindowsInstanceSpec struct {
	// Address is an IPv4 address or a DNS name that resolves to one.
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

	// Username of a local or domain administrator.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=104
	// +kubebuilder:validation:XValidation:rule="!self.matches('[\"/\\\\[\\\\]:;|=,+*?<>[:cntrl:]]|^ | $')",message="must be a Windows user name"
	Username string `json:"username"`

	// HostKey is the SSH host key to expect, as "<type> <base64>". Without it the key of the first
	// contact is pinned in status.
	// +kubebuilder:validation:MaxLength=8192
	// +kubebuilder:validation:Pattern=`^[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$`
	// +optional
	HostKey string `json:"hostKey,omitempty"`

	// Hostname is the name that the host is to have; it is renamed and rebooted before it joins.
	// Without it the host keeps its own.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	// +optional
	Hostname string `json:"hostname,omitempty"`

	// NodeIP is the IPv4 address of the Node, for hosts with several. Without it, it is that of the
	// interface with the default route.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^([0-9]{1,3}[.]){3}[0-9]{1,3}$`
	// +optional
	NodeIP string `json:"nodeIP,omitempty"`

	// ProviderID is how the cloud names the host. A Node with another one is not this host's.
	// +kubebuilder:validation:MaxLength=1024
	// +optional
	ProviderID string `json:"providerID,omitempty"`

	// Addresses are further names and addresses of the host, according to the cloud. Its serving
	// certificate may have them.
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +listType=set
	// +optional
	Addresses []string `json:"addresses,omitempty"`

	// Source is the object that this instance was made from. The operator deletes the instance when
	// the source is deleted.
	// +optional
	Source *Source `json:"source,omitempty"`

	// Labels to set on the Node, in addition to those that every Windows node has.
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

	// Paused stops the operator's work on this host. The daemon goes on repairing the node.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// PreflightOnly has the host checked once and left as it is: it does not join. The condition
	// PreflightPassed says what came of it, and an hour later the operator deletes the instance.
	// +optional
	PreflightOnly bool `json:"preflightOnly,omitempty"`

	// RemovalPolicy is Clean, Force for a host that is gone for good, or Discard for one that is
	// deleted with its Machine.
	// +kubebuilder:default=Clean
	// +optional
	RemovalPolicy RemovalPolicy `json:"removalPolicy,omitempty"`
}

// PhaseTime is how long a phase took.
type PhaseTime struct {
	// Phase of the join or removal.
	Phase Phase `json:"phase"`
	// StartTime of the phase in the present attempt.
	StartTime metav1.MicroTime `json:"startTime"`
	// Milliseconds that the phase took, absent while it lasts.
	// +optional
	Milliseconds *int64 `json:"milliseconds,omitempty"`
}

// HostInfo is what preflight found.
type HostInfo struct {
	// Hostname in lower case, without a domain.
	// +kubebuilder:validation:MaxLength=253
	Hostname string `json:"hostname,omitempty"`
	// MachineID is the MachineGuid of the Windows installation.
	// +kubebuilder:validation:MaxLength=128
	MachineID string `json:"machineID,omitempty"`
	// BootID differs with every boot; a new one proves a reboot.
	// +kubebuilder:validation:MaxLength=128
	BootID string `json:"bootID,omitempty"`
	// ProductName of Windows, as the host gives it.
	// +kubebuilder:validation:MaxLength=256
	ProductName string `json:"productName,omitempty"`
	// Build of Windows, such as 10.0.20348.2340.
	// +kubebuilder:validation:MaxLength=64
	Build string `json:"build,omitempty"`
	// NodeIP is the IPv4 address of the interface that has the default route.
	// +kubebuilder:validation:MaxLength=45
	NodeIP string `json:"nodeIP,omitempty"`
}

// KeyTrial is how a host responds to a private key that it has not accepted yet.
type KeyTrial struct {
	// PublicKeyHash of the key that is tried: the hex SHA-256 of its line in authorized_keys.
	// +kubebuilder:validation:MaxLength=64
	PublicKeyHash string `json:"publicKeyHash"`
	// Refusals counts how often the host refused the key. A host that can't be reached refuses
	// nothing.
	// +optional
	Refusals int32 `json:"refusals,omitempty"`
	// RefusedSince is when the host refused the key for the first time.
	// +optional
	RefusedSince *metav1.Time `json:"refusedSince,omitempty"`
	// LastRefusedTime is when the host refused the key for the last time.
	// +optional
	LastRefusedTime *metav1.Time `json:"lastRefusedTime,omitempty"`
	// LastTime is when the key was tried for the last time.
	// +optional
	LastTime *metav1.Time `json:"lastTime,omitempty"`
	// Failures counts failed attempts in a row, whatever the cause.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// NextTime is when a host that has joined is tried again.
	// +optional
	NextTime *metav1.Time `json:"nextTime,omitempty"`
}

// Disruption is a host's request for a place in the rollout budget, or its place there.
type Disruption struct {
	// Purpose of the disruption.
	// +kubebuilder:validation:Enum=Update;Reboot;Remove
	Purpose DisruptionPurpose `json:"purpose"`
	// Revision that the node goes to, if its rollout can be halted.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Revision string `json:"revision,omitempty"`
	// Since is the time when the host got its place. It is absent while the host waits.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
}

// HasPlace reports whether the host has a place in the rollout budget.
func (s *WindowsInstanceStatus) HasPlace() bool {
	return s.Disruption != nil && s.Disruption.Since != nil
}

// DisruptionPurpose is why a node is disrupted.
type DisruptionPurpose string

// Purposes of a disruption.
const (
	// DisruptionUpdate takes the host to another revision.
	DisruptionUpdate DisruptionPurpose = "Update"
	// DisruptionReboot reboots the host.
	DisruptionReboot DisruptionPurpose = "Reboot"
	// DisruptionRemove drains the node and cleans the host.
	DisruptionRemove DisruptionPurpose = "Remove"
)

// Step is how far an activity is.
// +kubebuilder:validation:Enum=Staging;Waiting;Draining;Switching;Verifying;RollingBack
type Step string

// Steps, in their order. A reboot has no Staging and no RollingBack.
const (
	StepStaging     Step = "Staging"     // the daemon fetches the payload; the node serves
	StepWaiting     Step = "Waiting"     // for a place in the rollout budget, a window, or the next try; it serves
	StepDraining    Step = "Draining"    // it has its place: cordoned, and pods are moved away
	StepSwitching   Step = "Switching"   // the daemon brings the host to the revision, or reboots it
	StepVerifying   Step = "Verifying"   // Ready for the settling time
	StepRollingBack Step = "RollingBack" // verification failed: the daemon applies the previous revision
)

// ActivityKind is what an activity does to a node.
// +kubebuilder:validation:Enum=Upgrade;Reboot
type ActivityKind string

// Kinds of an activity.
const (
	// ActivityUpgrade takes the node to another revision.
	ActivityUpgrade ActivityKind = "Upgrade"
	// ActivityReboot reboots the host.
	ActivityReboot ActivityKind = "Reboot"
)

// Activity is an upgrade or a reboot of a node that has joined. A node has one activity at a time.
type Activity struct {
	// Kind of the activity.
	Kind ActivityKind `json:"kind"`
	// Step that the activity is at.
	Step Step `json:"step"`
	// Since is when it reached this step.
	Since metav1.Time `json:"since"`
	// Tries counts drains that took too long, switches that failed, and hosts that did not reboot.
	// +optional
	Tries int32 `json:"tries,omitempty"`
	// NextTime is when it is tried again.
	// +optional
	NextTime *metav1.Time `json:"nextTime,omitempty"`
	// Revision that an upgrade takes the node to.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Revision string `json:"revision,omitempty"`
	// From is the revision that the node goes back to if the upgrade fails. It is absent if no revision was verified.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	From string `json:"from,omitempty"`
	// Drains says that an upgrade drains the node before the switch. A reboot always does.
	// +optional
	Drains bool `json:"drains,omitempty"`
	// SwitchTime is when the daemon was requested to apply the revision.
	// +optional
	SwitchTime *metav1.Time `json:"switchTime,omitempty"`
	// OverSSH says that the operator joins the host again over SSH, because its daemon can't fetch
	// the payload.
	// +optional
	OverSSH bool `json:"overSSH,omitempty"`
	// NothingSince is since when the daemon has received nothing of the payload that it fetches, or has
	// reported nothing about it. It is absent while the daemon receives something.
	// +optional
	NothingSince *metav1.Time `json:"nothingSince,omitempty"`
	// Missing is how many programs of the payload were missing when the daemon reported last.
	// +optional
	Missing int32 `json:"missing,omitempty"`
	// Reason why the last attempt failed, as a word.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says why the last attempt failed.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
	// BootID is the boot that a reboot ends. Another boot proves the reboot.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	BootID string `json:"bootID,omitempty"`
}

// Begun reports whether the node has had its turn: the operator drains, switches, reboots, verifies or rolls back the
// node.
func (a *Activity) Begun() bool {
	return a != nil && a.Step != StepStaging && a.Step != StepWaiting
}

// Upgrade returns the activity if it is an upgrade, else nil.
func (s *WindowsInstanceStatus) Upgrade() *Activity { return s.activity(ActivityUpgrade) }

// Reboot returns the activity if it is a reboot, else nil.
func (s *WindowsInstanceStatus) Reboot() *Activity { return s.activity(ActivityReboot) }

func (s *WindowsInstanceStatus) activity(kind ActivityKind) *Activity {
	if s.Activity == nil || s.Activity.Kind != kind {
		return nil
	}
	return s.Activity
}

// UpdateFailure is a revision at which this node failed and from which it went back.
type UpdateFailure struct {
	// Revision is the revision at which it failed.
	// +kubebuilder:validation:MaxLength=253
	Revision string `json:"revision"`
	// Code of the reason, such as W706.
	// +kubebuilder:validation:MaxLength=8
	Code string `json:"code"`
	// Message says what failed.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
	// Time when it went back.
	Time metav1.Time `json:"time"`
}

// WindowsInstanceStatus says where the host is, and what to do if it is stuck.
type WindowsInstanceStatus struct {
	// Phase the host is in.
	// +optional
	Phase Phase `json:"phase,omitempty"`
	// Reason for waiting or failing, as a word.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	Reason string `json:"reason,omitempty"`
	// Code is the stable number of the reason, such as W203. The reference page explains each.
	// +kubebuilder:validation:MaxLength=8
	// +optional
	Code string `json:"code,omitempty"`
	// Message says what happened, and to what.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Message string `json:"message,omitempty"`
	// Fix says what to do about it.
	// +kubebuilder:validation:MaxLength=4096
	// +optional
	Fix string `json:"fix,omitempty"`
	// Failures counts attempts that failed since the last success.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// NextAttemptTime is when a failed attempt is tried again.
	// +optional
	NextAttemptTime *metav1.Time `json:"nextAttemptTime,omitempty"`
	// NodeName is the Node of this host. It is set when preflight has read the host name and no
	// other instance has it.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	NodeName string `json:"nodeName,omitempty"`
	// NodeExpected says that there was no Node of this name when the host was given the credential to
	// register one. Only of such a Node does the host itself say which address it has.
	// +optional
	NodeExpected bool `json:"nodeExpected,omitempty"`
	// NodeUID is the Node that was adopted.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	NodeUID string `json:"nodeUID,omitempty"`
	// NodeLabels and NodeTaints are the keys of the labels, and the taints as "<key>:<effect>", that
	// the Node has from the spec. What leaves the spec is removed from the Node.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	NodeLabels []string `json:"nodeLabels,omitempty"`
	// NodeTaints: see NodeLabels.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	NodeTaints []string `json:"nodeTaints,omitempty"`
	// DaemonStopped says that a join has stopped the daemon on the host, or is about to, and has not started it again.
	// +optional
	DaemonStopped bool `json:"daemonStopped,omitempty"`
	// BootstrapCredentials are the ids of the bootstrap tokens that the present join was given, the
	// newest last. Only with one of them kubelet may ask for its first certificate. They are no
	// secret.
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=256
	// +listType=atomic
	// +optional
	BootstrapCredentials []string `json:"bootstrapCredentials,omitempty"`
	// HostKey is the SSH host key pinned at first contact, as "<type> <base64>".
	// +kubebuilder:validation:MaxLength=8192
	// +optional
	HostKey string `json:"hostKey,omitempty"`
	// HostAddress is the IP address at which the host was reached last, with the key that it is expected
	// to have. For its serving certificate it counts more than what the kubelets of others report.
	// +kubebuilder:validation:MaxLength=45
	// +optional
	HostAddress string `json:"hostAddress,omitempty"`
	// HostAddressTime is when that was. Of two hosts that were reached at one address and port, the address is the
	// one's that was reached later.
	// +optional
	HostAddressTime *metav1.Time `json:"hostAddressTime,omitempty"`
	// PublicKeyHash is the key that the host accepted last: the hex SHA-256 of its line in
	// authorized_keys.
	// +kubebuilder:validation:MaxLength=64
	// +optional
	PublicKeyHash string `json:"publicKeyHash,omitempty"`
	// KeyTrial is how the host responds to a key that it has not accepted yet; absent when it
	// accepted the present one.
	// +optional
	KeyTrial *KeyTrial `json:"keyTrial,omitempty"`
	// Disruption is the host's request for a place in the rollout budget, or its place. It is absent without a request.
	// +optional
	Disruption *Disruption `json:"disruption,omitempty"`
	// Activity is the upgrade or the reboot that is under way or waits. It is absent if the node has its revision and
	// no reboot is requested.
	// +optional
	Activity *Activity `json:"activity,omitempty"`
	// UpdateFailure is the last revision at which the node failed; absent once another one than
	// before is verified.
	// +optional
	UpdateFailure *UpdateFailure `json:"updateFailure,omitempty"`
	// Reboots counts reboots in a row, each within an hour after the one before, or with a request
	// that lasts.
	// +optional
	Reboots int32 `json:"reboots,omitempty"`
	// LastRebootTime is when the last of them was verified.
	// +optional
	LastRebootTime *metav1.Time `json:"lastRebootTime,omitempty"`
	// Host is what preflight found.
	// +optional
	Host *HostInfo `json:"host,omitempty"`
	// RebootTime is when a reboot was asked for that is not verified yet.
	// +optional
	RebootTime *metav1.Time `json:"rebootTime,omitempty"`
	// Revision that the daemon reports as applied; DesiredRevision what it should be.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Revision string `json:"revision,omitempty"`
	// DesiredRevision is the revision that was requested of the daemon last. A host that waits for a
	// place in the budget, or went back, is at it, although another one is published.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	DesiredRevision string `json:"desiredRevision,omitempty"`
	// HeldRevision is the last revision at which the node was verified. It goes back to it when
	// another one fails.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	HeldRevision string `json:"heldRevision,omitempty"`
	// Phases of the present attempt and how long each took.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +optional
	Phases []PhaseTime `json:"phases,omitempty"`
	// JoinedTime is when the host first became Ready.
	// +optional
	JoinedTime *metav1.Time `json:"joinedTime,omitempty"`
	// Conditions are Ready, Reachable, PreflightPassed, Progressing, KeyAuthorized, SkewSupported and
	// WorkloadsFit.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WindowsInstance is one Windows host that is, or is to become, a node.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=wininst,categories=windows
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=`.spec.source.kind`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Revision",type=string,JSONPath=`.status.revision`
// +kubebuilder:printcolumn:name="Code",type=string,JSONPath=`.status.code`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Fix",type=string,priority=1,JSONPath=`.status.fix`
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
