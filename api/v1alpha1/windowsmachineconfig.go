package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Condition types of a WindowsMachineConfig.
const (
	// ConditionAvailable is True when the operator has everything it needs to join hosts; otherwise its reason names what is missing.
	ConditionAvailable = "Available"
	// ConditionUpgradeable is False while any host is on its way in, out or to another version.
	ConditionUpgradeable = "Upgradeable"
	// ConditionDegraded is True when a host failed, or an entry can't be understood.
	ConditionDegraded = "Degraded"
)

// RolloutSpec bounds how many hosts are worked on at once.
type RolloutSpec struct {
	// MaxConcurrentJoins is how many hosts may be on their way in at once. Hosts that can't be reached don't count.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxConcurrentJoins int32 `json:"maxConcurrentJoins,omitempty"`
	// MaxUnavailable is how many nodes may be unavailable because of us, as a number or a percentage of all Windows nodes.
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')",message="a number, or a percentage from 0% to 100%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// DrainTimeout is how long pods are given to move away, beside their own grace period.
	// +kubebuilder:default="10m"
	// +optional
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
}

// LoggingSpec sets the logs of the managed services.
type LoggingSpec struct {
	// Debug makes every managed service log in detail.
	// +optional
	Debug bool `json:"debug,omitempty"`
}

// WindowsMachineConfigSpec holds the settings of all Windows nodes. Every field has a default, and the object may be absent.
type WindowsMachineConfigSpec struct {
	// Rollout bounds how many hosts are worked on at once.
	// +kubebuilder:default={}
	// +optional
	Rollout RolloutSpec `json:"rollout,omitempty"`
	// Logging sets the logs of the managed services.
	// +optional
	Logging LoggingSpec `json:"logging,omitempty"`
}

// InstanceCounts counts instances by how they are. A patch of the status leaves out what is zero, so zero is the default of each.
type InstanceCounts struct {
	// Total of all instances.
	// +kubebuilder:default=0
	// +optional
	Total int32 `json:"total"`
	// Ready instances are nodes at their desired version.
	// +kubebuilder:default=0
	// +optional
	Ready int32 `json:"ready"`
	// Joining instances are on their way, and no attempt has failed since the last success.
	// +kubebuilder:default=0
	// +optional
	Joining int32 `json:"joining"`
	// Failing instances had an attempt that failed since the last success.
	// +kubebuilder:default=0
	// +optional
	Failing int32 `json:"failing"`
	// Leaving instances are being removed.
	// +kubebuilder:default=0
	// +optional
	Leaving int32 `json:"leaving"`
}

// RejectedEntry is an entry of windows-instances that is not understood. An instance that it named before stays as it is.
type RejectedEntry struct {
	// Key of the entry.
	Key string `json:"key"`
	// Code of the reason, such as W101.
	Code string `json:"code"`
	// Message says what is wrong with it, and the fix.
	Message string `json:"message"`
}

// WindowsMachineConfigStatus says how the whole is.
type WindowsMachineConfigStatus struct {
	// Instances are counted by how they are.
	// +optional
	Instances InstanceCounts `json:"instances,omitempty"`
	// RejectedEntries are the entries of windows-instances that are not understood; at most 20 are listed.
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=20
	// +optional
	RejectedEntries []RejectedEntry `json:"rejectedEntries,omitempty"`
	// DesiredVersion is the published version that nodes are brought to.
	// +optional
	DesiredVersion string `json:"desiredVersion,omitempty"`
	// Conditions are Available, Upgradeable and Degraded.
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WindowsMachineConfig holds the settings of all Windows nodes. There is one, named cluster.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=winconf,categories=windows
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="the only WindowsMachineConfig is named cluster"
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Upgradeable",type=string,JSONPath=`.status.conditions[?(@.type=="Upgradeable")].status`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.instances.total`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.instances.ready`
// +kubebuilder:printcolumn:name="Failing",type=integer,JSONPath=`.status.instances.failing`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
type WindowsMachineConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec WindowsMachineConfigSpec `json:"spec,omitempty"`
	// +optional
	Status WindowsMachineConfigStatus `json:"status,omitempty"`
}

// WindowsMachineConfigList is a list of WindowsMachineConfig.
// +kubebuilder:object:root=true
type WindowsMachineConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WindowsMachineConfig `json:"items"`
}
