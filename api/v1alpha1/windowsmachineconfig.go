package v1alpha1

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Condition types of a WindowsMachineConfig.
const (
	// ConditionAvailable is True when the operator has everything it needs to join hosts; otherwise
	// its reason names what is missing.
	ConditionAvailable = "Available"
	// ConditionUpgradeable is False while any host joins, leaves or is updated, or a prerequisite
	// is missing. A host that is off, fails, or is paused before its join does not count, nor does
	// one that waits for those that are off: the upgrade may be the cure. Nor does an unsupported
	// Kubernetes version, or that nothing could be published for nodes (W938).
	ConditionUpgradeable = "Upgradeable"
	// ConditionDegraded is True when a host failed, an entry or a setting is invalid, a Machine can't
	// become a node, or a rollout is halted.
	ConditionDegraded = "Degraded"
	// ConditionAccepted is True when nodes get everything that the settings of the cluster and of
	// this object say; otherwise its reason names the first setting that is left out, such as a
	// mirror, a certificate or a field of kubelet's configuration. Its observedGeneration is that of
	// the settings that are published for nodes; of spec.rollout it always tells what is set now.
	ConditionAccepted = "Accepted"
	// ConditionPayloadComplete is False when the operator was built without a program, so that a
	// feature of nodes is off; its message names both.
	ConditionPayloadComplete = "PayloadComplete"
)

// Defaults of RolloutSpec, where there is no WindowsMachineConfig to hold them. The CRD has the
// same.
const (
	DefaultDrainTimeout  = 10 * time.Minute
	DefaultSettleTime    = 10 * time.Second
	DefaultVerifyTimeout = 10 * time.Minute
	// Hiccups of leases last seconds, and kubelet's restart less than a minute.
	DefaultUnavailableAfter = 5 * time.Minute
)

// RolloutSpec bounds how many hosts are worked on at once.
type RolloutSpec struct {
	// MaxConcurrentJoins is how many hosts may join at once. Hosts that can't be reached don't
	// count.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxConcurrentJoins int32 `json:"maxConcurrentJoins,omitempty"`
	// MaxUnavailable is how many nodes may be unavailable at once when the operator disrupts one,
	// as a number, or a percentage of all Windows nodes, rounded up.
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')",message="a number, or a percentage from 0% to 100%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// UnavailableAfter is how long a node must be not Ready until it counts as out of service: then
	// it does not wait until other nodes are back, and its pods are not waited for. Until then it
	// is treated as one in service.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	UnavailableAfter *metav1.Duration `json:"unavailableAfter,omitempty"`
	// DrainTimeout is how long pods may take to be evicted, in addition to their own grace period.
	// A node that can't be drained in time goes back into service and is tried again later, so that
	// others go on.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
	// SettleTime is how long a node must be Ready without interruption, at its new revision or
	// after its reboot, before it goes back into service.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	SettleTime *metav1.Duration `json:"settleTime,omitempty"`
	// VerifyTimeout is how long a node may take from the switch until it is verified at its new
	// revision. After that the previous revision is restored. A reboot may take as long, but at
	// least 20 minutes.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	VerifyTimeout *metav1.Duration `json:"verifyTimeout,omitempty"`
	// FailureThreshold is how many nodes may fail at a revision before no other node is taken to
	// it. Hosts that join for the first time get it all the same.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
	// MaintenanceWindows are the times in which nodes may be disrupted. What began in a window is
	// finished after it. Removals do not wait for one. Without
	// windows nodes may be disrupted at any time. While one of them is invalid, no node that is in
	// service is disrupted.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	MaintenanceWindows []MaintenanceWindow `json:"maintenanceWindows,omitempty"`
	// RebootWhenPending has hosts rebooted, within the same bounds, when Windows has a reboot
	// pending.
	// +optional
	RebootWhenPending bool `json:"rebootWhenPending,omitempty"`
}

// MaintenanceWindow is a recurring time in which nodes may be disrupted.
type MaintenanceWindow struct {
	// Start is a cron expression of five fields, minute first, such as "0 22 * * 6".
	// +kubebuilder:validation:MinLength=9
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[^=\s]+(\s+[^=\s]+){4}$`
	Start string `json:"start"`
	// Duration of the window, at most a week.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s') && duration(self) <= duration('168h')",message="a window is open for more than 0s and at most 168h"
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	Duration metav1.Duration `json:"duration"`
	// TimeZone of Start, from the IANA database, such as Europe/Berlin. Without it, it is UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="Local is not allowed"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// LoggingSpec configures the logs of the managed services.
type LoggingSpec struct {
	// Debug makes every managed service and the daemon log in detail.
	// +optional
	Debug bool `json:"debug,omitempty"`
	// MaxSize is the size at which a log file is full and a new one begins, such as 50Mi. 0 means
	// no limit. By default it is the operator's SERVICES_LOG_FILE_SIZE, or else 100Mi.
	// +optional
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`
	// MaxAge is how long a full file is kept, such as 72h. 0s means no limit. By default it is the
	// operator's SERVICES_LOG_FILE_AGE, or else 168h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// MaxFiles is how many full files of each service are kept, the newest ones. 0 means no limit.
	// By default it is 5.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxFiles *int32 `json:"maxFiles,omitempty"`
	// FlushInterval is how often the logs of kubelet and kube-proxy are flushed to disk; the other
	// services write without a buffer. 0s leaves it to Windows. By default it is the operator's
	// SERVICES_LOG_FLUSH_INTERVAL, or else 0s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	FlushInterval *metav1.Duration `json:"flushInterval,omitempty"`
}

// KubeletSpec configures kubelet.
type KubeletSpec struct {
	// Config has fields of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1), merged into the
	// operator's: objects field by field, everything else as a whole. It is decoded strictly.
	// Fields that the operator must set, fields without effect on Windows, and values with which
	// kubelet would not start are rejected with the reason, and the last accepted configuration
	// stays in force.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Config *runtime.RawExtension `json:"config,omitempty"`
}

// TrustSpec sets which CAs nodes trust, in addition to those of the cluster's proxy and registries.
type TrustSpec struct {
	// AdditionalCA is the name of a ConfigMap in the operator's namespace. All Windows nodes trust
	// every certificate in it, under whatever key.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	AdditionalCA string `json:"additionalCA,omitempty"`
}

// NetworkType is a network that Windows nodes are on.
// +kubebuilder:validation:Enum=OVNKubernetesHybrid;External;Flannel
type NetworkType string

// Networks.
const (
	// NetworkOVNKubernetesHybrid is OVN-Kubernetes with a hybrid overlay, on OpenShift.
	NetworkOVNKubernetesHybrid NetworkType = "OVNKubernetesHybrid"
	// NetworkExternal leaves CNI plugins and kube-proxy to somebody else, such as Calico's pods.
	NetworkExternal NetworkType = "External"
	// NetworkFlannel is flannel with its VXLAN backend: the operator runs flanneld on Windows nodes.
	NetworkFlannel NetworkType = "Flannel"
)

// NetworkSpec says which network Windows nodes are on.
type NetworkSpec struct {
	// Type is OVNKubernetesHybrid on OpenShift. On other clusters it is External, which is the default
	// unless nodes are on flannel already: CNI plugins and kube-proxy come from somebody else, such as
	// Calico's pods, and the operator installs neither; or Flannel: the operator runs flanneld and
	// kube-proxy on Windows nodes, as flannel's own ConfigMap says.
	// +optional
	Type NetworkType `json:"type,omitempty"`
	// ClusterDomain is the DNS domain in which the names of Services are, such as k8s.example.com. By
	// default it is networking.dnsDomain in the ConfigMap kube-system/kubeadm-config, which kubeadm makes,
	// or else the one that nodes have already, or cluster.local.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`
}

// ProxySpec is how nodes reach the world outside, where there is no Proxy object of OpenShift.
type ProxySpec struct {
	// HTTPProxy is the URL of the proxy for HTTP requests.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	HTTPProxy string `json:"httpProxy,omitempty"`
	// HTTPSProxy is the URL of the proxy for HTTPS requests.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	// NoProxy lists what is reached without the proxy, separated by commas. The API server, the
	// cluster's services and its pods are added.
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	NoProxy string `json:"noProxy,omitempty"`
}

// ImageMirrors are the mirrors of one source. Its fields have the meaning that they have in an
// ImageDigestMirrorSet of OpenShift.
type ImageMirrors struct {
	// Source is a registry, a repository or a part of its name, such as docker.io/library, or a
	// wildcard such as *.example.com.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Source string `json:"source"`
	// Mirrors are tried in this order, before the source.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Mirrors []string `json:"mirrors,omitempty"`
	// MirrorSourcePolicy says whether the source is tried when no mirror has the image.
	// +kubebuilder:validation:Enum=AllowContactingSource;NeverContactSource
	// +optional
	MirrorSourcePolicy string `json:"mirrorSourcePolicy,omitempty"`
}

// MirrorsSpec says which mirrors images are pulled from, where there are no objects of OpenShift for
// that.
type MirrorsSpec struct {
	// ImageDigestMirrors are for images that are named by digest.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	ImageDigestMirrors []ImageMirrors `json:"imageDigestMirrors,omitempty"`
	// ImageTagMirrors are for images that are named by tag.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	ImageTagMirrors []ImageMirrors `json:"imageTagMirrors,omitempty"`
}

// WindowsMachineConfigSpec holds the settings of all Windows nodes. Every field has a default, and
// the operator makes the object with them. On OpenShift the cluster's own objects say what apiServer,
// network, proxy, mirrors and pullSecret say elsewhere, and these are refused there.
type WindowsMachineConfigSpec struct {
	// Rollout bounds how many hosts are worked on at once.
	// +kubebuilder:default={}
	// +optional
	Rollout RolloutSpec `json:"rollout,omitempty"`
	// Logging configures the logs of the managed services and of the daemon.
	// +optional
	Logging LoggingSpec `json:"logging,omitempty"`
	// Kubelet configures kubelet.
	// +optional
	Kubelet KubeletSpec `json:"kubelet,omitempty"`
	// Trust sets which CAs nodes trust.
	// +optional
	Trust TrustSpec `json:"trust,omitempty"`
	// APIServer is the URL by which hosts reach the API server, such as
	// https://api.example.com:6443. By default it is read from the ConfigMap
	// kube-public/cluster-info, which kubeadm makes.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	APIServer string `json:"apiServer,omitempty"`
	// Network says which network Windows nodes are on.
	// +optional
	Network NetworkSpec `json:"network,omitempty"`
	// Proxy is how nodes reach the world outside.
	// +optional
	Proxy ProxySpec `json:"proxy,omitempty"`
	// Mirrors says which mirrors images are pulled from.
	// +optional
	Mirrors MirrorsSpec `json:"mirrors,omitempty"`
	// PullSecret names a Secret of type kubernetes.io/dockerconfigjson in the operator's namespace
	// with credentials for mirrors.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PullSecret string `json:"pullSecret,omitempty"`
}

// InstanceCounts counts instances by their state. A patch of the status leaves out what is zero, so
// zero is the default of each.
type InstanceCounts struct {
	// Total of all instances.
	// +kubebuilder:default=0
	// +optional
	Total int32 `json:"total"`
	// Ready instances are nodes at their desired revision.
	// +kubebuilder:default=0
	// +optional
	Ready int32 `json:"ready"`
	// Joining instances are not Ready yet, and no attempt has failed since the last success.
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

// RejectedEntry is an invalid entry of windows-instances. An instance that it named before stays as
// it is.
type RejectedEntry struct {
	// Key of the entry.
	Key string `json:"key"`
	// Code of the reason, such as W101.
	Code string `json:"code"`
	// Message says what is wrong with it, and the fix.
	Message string `json:"message"`
}

// RejectedSetting is an invalid setting of the cluster or of this object, which nodes don't get.
type RejectedSetting struct {
	// Code of the reason, such as W908.
	Code string `json:"code"`
	// Message says what is left out and why, and the fix.
	Message string `json:"message"`
}

// KubeletStatus says which configuration kubelets get.
type KubeletStatus struct {
	// AcceptedConfig is the last accepted spec.kubelet.config. It stays in force while a newer one
	// is rejected, unless kubelet has another version since, which does not take it.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	AcceptedConfig *runtime.RawExtension `json:"acceptedConfig,omitempty"`
}

// RolloutPhase is the state of a rollout.
// +kubebuilder:validation:Enum=Idle;Progressing;Waiting;Halted
type RolloutPhase string

// Phases of a rollout.
const (
	RolloutIdle        RolloutPhase = "Idle"        // every node is at the revision
	RolloutProgressing RolloutPhase = "Progressing" // nodes are being taken to it
	RolloutWaiting     RolloutPhase = "Waiting"     // nodes are behind, and none may be disrupted now
	RolloutHalted      RolloutPhase = "Halted"      // too many nodes failed at it
)

// RolloutFailure is a node that failed at a revision and went back.
type RolloutFailure struct {
	// Node that failed.
	Node string `json:"node"`
	// Revision is the revision at which it failed.
	Revision string `json:"revision"`
	// Code of the reason, such as W706.
	Code string `json:"code"`
	// Message says what failed.
	// +optional
	Message string `json:"message,omitempty"`
	// Time when it went back.
	Time metav1.Time `json:"time"`
}

// RolloutStatus is the progress of the desired revision.
type RolloutStatus struct {
	// Revision is the revision that nodes are taken to.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Phase of the rollout.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`
	// Total of all hosts that have joined.
	// +kubebuilder:default=0
	// +optional
	Total int32 `json:"total"`
	// Updated hosts are at the revision.
	// +kubebuilder:default=0
	// +optional
	Updated int32 `json:"updated"`
	// Staged hosts have its payload, and are at it or wait for a place in the budget.
	// +kubebuilder:default=0
	// +optional
	Staged int32 `json:"staged"`
	// Unavailable hosts have joined and are not Ready, or are being updated or rebooted.
	// +kubebuilder:default=0
	// +optional
	Unavailable int32 `json:"unavailable"`
	// Message says what it waits for, or why it is halted and how to go on.
	// +optional
	Message string `json:"message,omitempty"`
	// Failures at this revision, the newest 20.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Failures []RolloutFailure `json:"failures,omitempty"`
}

// OperatorStatus names the operator that the Windows nodes of a cluster belong to. There is one: another
// one, in another namespace, does nothing while that is installed.
type OperatorStatus struct {
	// Namespace in which the operator runs.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// RenewTime is when it last said so, which it does every five minutes.
	// +optional
	RenewTime *metav1.Time `json:"renewTime,omitempty"`
}

// WindowsMachineConfigStatus is the state of all Windows nodes together.
type WindowsMachineConfigStatus struct {
	// Operator is the one that the Windows nodes of this cluster belong to.
	// +optional
	Operator OperatorStatus `json:"operator,omitempty"`
	// Instances are counted by their state.
	// +optional
	Instances InstanceCounts `json:"instances,omitempty"`
	// RejectedEntries are the invalid entries of windows-instances; at most 20 are listed.
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=20
	// +optional
	RejectedEntries []RejectedEntry `json:"rejectedEntries,omitempty"`
	// RejectedSettings are the invalid settings, which nodes don't get; at most 20 are listed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	RejectedSettings []RejectedSetting `json:"rejectedSettings,omitempty"`
	// Kubelet says which configuration kubelets get.
	// +optional
	Kubelet KubeletStatus `json:"kubelet,omitempty"`
	// DesiredRevision is the published revision that nodes are taken to. It stays while a problem keeps the next
	// one from being published.
	// +optional
	DesiredRevision string `json:"desiredRevision,omitempty"`
	// Rollout is the progress of the desired revision.
	// +optional
	Rollout RolloutStatus `json:"rollout,omitempty"`
	// Conditions are Available, Upgradeable, Degraded, Accepted and PayloadComplete.
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
// +kubebuilder:printcolumn:name="Payload",type=string,JSONPath=`.status.conditions[?(@.type=="PayloadComplete")].reason`
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=`.status.instances.total`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.instances.ready`
// +kubebuilder:printcolumn:name="Failing",type=integer,JSONPath=`.status.instances.failing`
// +kubebuilder:printcolumn:name="Rollout",type=string,JSONPath=`.status.rollout.phase`
// +kubebuilder:printcolumn:name="Updated",type=integer,JSONPath=`.status.rollout.updated`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Available")].message`
// +kubebuilder:printcolumn:name="Rollout Message",type=string,priority=1,JSONPath=`.status.rollout.message`
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
