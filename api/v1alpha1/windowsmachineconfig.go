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
	// ConditionAvailable is True if the operator has everything it needs to join hosts. Otherwise its reason names
	// what is missing.
	ConditionAvailable = "Available"
	// ConditionUpgradeable is False while any host joins, leaves or is updated, or while a prerequisite is missing. The
	// condition ignores failing hosts, hosts that were paused before their join, and hosts that wait for a slot in the
	// rollout budget, for a window or for another try. No work on these hosts is in progress, and the upgrade may fix
	// them. The condition also ignores an unsupported Kubernetes version, and a failure to publish anything for nodes
	// (W938).
	ConditionUpgradeable = "Upgradeable"
	// ConditionDegraded is True if a host failed, an entry or a setting is invalid, a Machine can't become a node,
	// or a rollout is halted.
	ConditionDegraded = "Degraded"
	// ConditionAccepted is True if nodes get all settings of the cluster and of this object. Otherwise its reason
	// names the first setting that nodes don't get, such as a mirror, a certificate or a field of kubelet's
	// configuration. Its observedGeneration is the generation of the settings that are published for nodes.
	// Exception: for spec.rollout, the condition always describes the current settings.
	ConditionAccepted = "Accepted"
	// ConditionPayloadComplete is False if the operator was built without a program, so that a feature of nodes is
	// off. Its message names the program and the feature.
	ConditionPayloadComplete = "PayloadComplete"
)

// Defaults of RolloutSpec if there is no WindowsMachineConfig. The CRD has the same defaults.
const (
	DefaultDrainTimeout  = 10 * time.Minute
	DefaultSettleTime    = 10 * time.Second
	DefaultVerifyTimeout = 10 * time.Minute
	// DefaultUnavailableAfter is longer than a late lease renewal (seconds) or a restart of kubelet (under a minute).
	DefaultUnavailableAfter = 5 * time.Minute
)

// RolloutSpec limits how many hosts the operator changes at once.
type RolloutSpec struct {
	// MaxConcurrentJoins is how many hosts may join at once. Hosts that can't be reached don't count.
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxConcurrentJoins int32 `json:"maxConcurrentJoins,omitempty"`
	// MaxUnavailable is how many nodes may be unavailable at once when the operator disrupts a node. It is a
	// number, or a percentage of all Windows nodes, rounded up.
	// +kubebuilder:default=1
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 : self.matches('^(100|[0-9]{1,2})%$')",message="a number, or a percentage from 0% to 100%"
	// +optional
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
	// UnavailableAfter is how long a node isn't Ready before it counts as out of service. Then the operator disrupts
	// the node without waiting for other nodes or for the node's pods. Until then, the node counts as in service.
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	UnavailableAfter *metav1.Duration `json:"unavailableAfter,omitempty"`
	// DrainTimeout is how long the eviction of pods may take, in addition to their own grace period. If a node can't be
	// drained in time, it goes back into service and the operator tries again later, so that other nodes can continue.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	DrainTimeout *metav1.Duration `json:"drainTimeout,omitempty"`
	// SettleTime is how long a node must be Ready without interruption, at its new revision or after its reboot,
	// before it goes back into service.
	// +kubebuilder:default="10s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	SettleTime *metav1.Duration `json:"settleTime,omitempty"`
	// VerifyTimeout is the maximum time from the request for the new revision until the node is verified. If a Ready
	// node's daemon reports nothing, the time doubles. After this time, the operator restores the previous revision, if
	// any. For a reboot, the time is at least 20 minutes, and starts again at the step Verifying.
	// +kubebuilder:default="10m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	VerifyTimeout *metav1.Duration `json:"verifyTimeout,omitempty"`
	// FailureThreshold is a number of nodes. If this many nodes fail at a revision, the operator upgrades no more nodes
	// to this revision. Hosts that join for the first time still get the revision.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	// +optional
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
	// MaintenanceWindows are the times when the operator may disrupt nodes. A disruption that began in a window
	// continues after the window's end. Removals don't wait for a window. Without windows, the operator may disrupt
	// nodes at any time. While a window is invalid, the operator disrupts no node that is in service.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	MaintenanceWindows []MaintenanceWindow `json:"maintenanceWindows,omitempty"`
	// RebootWhenPending: the operator reboots a host when Windows needs a reboot, within the limits of spec.rollout.
	// +optional
	RebootWhenPending bool `json:"rebootWhenPending,omitempty"`
}

// MaintenanceWindow is a recurring time when the operator may disrupt nodes.
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
	// TimeZone of Start, from the IANA database, such as Europe/Berlin. The default is UTC.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self != 'Local'",message="Local is not allowed"
	// +optional
	TimeZone string `json:"timeZone,omitempty"`
}

// LoggingSpec configures the logs of the managed services.
type LoggingSpec struct {
	// Debug makes the managed services, except cloud-node-manager, and the daemon log in detail.
	// +optional
	Debug bool `json:"debug,omitempty"`
	// MaxSize is the maximum size of a log file, such as 50Mi. At this size, a new file begins. 0 means no limit.
	// The default is the operator's SERVICES_LOG_FILE_SIZE, or else 100Mi.
	// +optional
	MaxSize *resource.Quantity `json:"maxSize,omitempty"`
	// MaxAge is how long a full file is kept, such as 72h. 0s means no limit. The default is the operator's
	// SERVICES_LOG_FILE_AGE, or else 168h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	MaxAge *metav1.Duration `json:"maxAge,omitempty"`
	// MaxFiles is how many full files of each service are kept. The oldest files are deleted first. 0 means no
	// limit. The default is 5.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	// +optional
	MaxFiles *int32 `json:"maxFiles,omitempty"`
	// FlushInterval is how often the logs of kubelet, kube-proxy and cloud-node-manager are flushed to disk. The
	// other services write without a buffer. 0s means that Windows decides. The default is the operator's
	// SERVICES_LOG_FLUSH_INTERVAL, or else 0s.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	// +optional
	FlushInterval *metav1.Duration `json:"flushInterval,omitempty"`
}

// KubeletSpec configures kubelet.
type KubeletSpec struct {
	// Config has fields of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1). They are merged into the
	// operator's configuration: objects field by field, everything else as a whole. The operator decodes them
	// strictly. It rejects fields that it must set itself, fields without effect on Windows, and values that keep
	// kubelet from starting. The rejection gives the reason, and the last accepted configuration stays in force.
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +optional
	Config *runtime.RawExtension `json:"config,omitempty"`
}

// TrustSpec lists CAs that nodes trust, in addition to the CAs of the cluster's proxy and registries.
type TrustSpec struct {
	// AdditionalCA is the name of a ConfigMap in the operator's namespace. All Windows nodes trust every
	// certificate in it, under any key.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	AdditionalCA string `json:"additionalCA,omitempty"`
}

// NetworkType is the type of the network of Windows nodes.
// +kubebuilder:validation:Enum=OVNKubernetesHybrid;External;Flannel
type NetworkType string

// Networks.
const (
	// NetworkOVNKubernetesHybrid is OVN-Kubernetes with a hybrid overlay, on OpenShift.
	NetworkOVNKubernetesHybrid NetworkType = "OVNKubernetesHybrid"
	// NetworkExternal means that other software, such as Calico's pods, installs CNI plugins and kube-proxy.
	NetworkExternal NetworkType = "External"
	// NetworkFlannel is flannel with its VXLAN backend. The operator runs flanneld on Windows nodes.
	NetworkFlannel NetworkType = "Flannel"
)

// NetworkSpec describes the network of Windows nodes.
type NetworkSpec struct {
	// Type is OVNKubernetesHybrid on OpenShift. On other clusters it is External or Flannel. The default there is
	// External, unless nodes already use flannel. External: other software, such as Calico's pods, installs CNI
	// plugins and kube-proxy. Flannel: the operator runs flanneld and kube-proxy on Windows nodes, with the
	// configuration in flannel's own ConfigMap.
	// +optional
	Type NetworkType `json:"type,omitempty"`
	// ClusterDomain is the DNS domain of Services, such as k8s.example.com. The default is networking.dnsDomain in
	// the ConfigMap kube-system/kubeadm-config, which kubeadm creates. Without this ConfigMap, the default is
	// the domain that nodes already have, or else cluster.local.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`
}

// ProxySpec is the proxy for connections of nodes to destinations outside the cluster. It is for clusters without
// OpenShift's Proxy object.
type ProxySpec struct {
	// HTTPProxy is the URL of the proxy for HTTP requests.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	HTTPProxy string `json:"httpProxy,omitempty"`
	// HTTPSProxy is the URL of the proxy for HTTPS requests.
	// +kubebuilder:validation:MaxLength=2048
	// +optional
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	// NoProxy lists destinations that don't use the proxy, separated by commas. The API server, the cluster's
	// services and its pods are added.
	// +kubebuilder:validation:MaxLength=16384
	// +optional
	NoProxy string `json:"noProxy,omitempty"`
}

// ImageMirrors are the mirrors of one source. The fields have the same meaning as in an ImageDigestMirrorSet of
// OpenShift.
type ImageMirrors struct {
	// Source is a registry, a repository or a part of its name, such as docker.io/library, or a wildcard such as
	// *.example.com.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Source string `json:"source"`
	// Mirrors are tried in this order, before the source.
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	// +optional
	Mirrors []string `json:"mirrors,omitempty"`
	// MirrorSourcePolicy controls whether nodes try the source if no mirror has the image.
	// +kubebuilder:validation:Enum=AllowContactingSource;NeverContactSource
	// +optional
	MirrorSourcePolicy string `json:"mirrorSourcePolicy,omitempty"`
}

// MirrorsSpec lists the mirrors that images are pulled from, on clusters without OpenShift's objects for mirrors.
type MirrorsSpec struct {
	// ImageDigestMirrors are for images with a digest in their name.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	ImageDigestMirrors []ImageMirrors `json:"imageDigestMirrors,omitempty"`
	// ImageTagMirrors are for images with a tag in their name.
	// +kubebuilder:validation:MaxItems=256
	// +listType=atomic
	// +optional
	ImageTagMirrors []ImageMirrors `json:"imageTagMirrors,omitempty"`
}

// WindowsMachineConfigSpec holds the settings of all Windows nodes. Every field has a default. The operator creates
// the object with these defaults. On OpenShift, the cluster's own objects replace apiServer, network, proxy,
// mirrors and pullSecret. There, the operator ignores these fields and reports them as rejected.
type WindowsMachineConfigSpec struct {
	// Rollout limits how many hosts the operator changes at once.
	// +kubebuilder:default={}
	// +optional
	Rollout RolloutSpec `json:"rollout,omitempty"`
	// Logging configures the logs of the managed services and of the daemon.
	// +optional
	Logging LoggingSpec `json:"logging,omitempty"`
	// Kubelet configures kubelet.
	// +optional
	Kubelet KubeletSpec `json:"kubelet,omitempty"`
	// Trust lists CAs that nodes trust.
	// +optional
	Trust TrustSpec `json:"trust,omitempty"`
	// APIServer is the URL of the API server for hosts, such as https://api.example.com:6443. The default is read
	// from the ConfigMap kube-public/cluster-info, which kubeadm creates.
	// +kubebuilder:validation:MaxLength=512
	// +optional
	APIServer string `json:"apiServer,omitempty"`
	// Network describes the network of Windows nodes.
	// +optional
	Network NetworkSpec `json:"network,omitempty"`
	// Proxy is the proxy for connections of nodes to destinations outside the cluster.
	// +optional
	Proxy ProxySpec `json:"proxy,omitempty"`
	// Mirrors lists the mirrors that images are pulled from.
	// +optional
	Mirrors MirrorsSpec `json:"mirrors,omitempty"`
	// PullSecret names a Secret of type kubernetes.io/dockerconfigjson in the operator's namespace, with credentials
	// for mirrors.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	PullSecret string `json:"pullSecret,omitempty"`
}

// InstanceCounts counts instances by state. A patch of the status omits zeros, so zero is the default of each field.
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
	// Failing instances had a failed attempt since the last success.
	// +kubebuilder:default=0
	// +optional
	Failing int32 `json:"failing"`
	// Leaving instances are being removed.
	// +kubebuilder:default=0
	// +optional
	Leaving int32 `json:"leaving"`
}

// RejectedEntry is an invalid entry of windows-instances. If an instance was created from the entry before, that
// instance stays unchanged.
type RejectedEntry struct {
	// Key of the entry.
	Key string `json:"key"`
	// Code of the reason, such as W101.
	Code string `json:"code"`
	// Message says what is wrong with the entry, and the fix.
	Message string `json:"message"`
}

// RejectedSetting is an invalid setting of the cluster or of this object. Nodes don't get this setting.
type RejectedSetting struct {
	// Code of the reason, such as W908.
	Code string `json:"code"`
	// Message says which setting nodes don't get, why, and the fix.
	Message string `json:"message"`
}

// KubeletStatus is the configuration that kubelets get.
type KubeletStatus struct {
	// AcceptedConfig is the last accepted spec.kubelet.config. It stays in force while a newer configuration is
	// rejected. Exception: if a new version of kubelet doesn't accept this configuration, the defaults are in force.
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
	RolloutIdle        RolloutPhase = "Idle"        // every node has the revision
	RolloutProgressing RolloutPhase = "Progressing" // nodes are being upgraded to the revision
	RolloutWaiting     RolloutPhase = "Waiting"     // some nodes don't have the revision, and none may be disrupted now
	RolloutHalted      RolloutPhase = "Halted"      // too many nodes failed at the revision
)

// RolloutFailure is a node that failed at a revision and was rolled back.
type RolloutFailure struct {
	// Node that failed.
	Node string `json:"node"`
	// Revision is the revision that failed.
	Revision string `json:"revision"`
	// Code of the reason, such as W706.
	Code string `json:"code"`
	// Message says what failed.
	// +optional
	Message string `json:"message,omitempty"`
	// Time of the rollback.
	Time metav1.Time `json:"time"`
}

// RolloutStatus is the progress of the desired revision.
type RolloutStatus struct {
	// Revision is the target revision of nodes.
	// +optional
	Revision string `json:"revision,omitempty"`
	// Phase of the rollout.
	// +optional
	Phase RolloutPhase `json:"phase,omitempty"`
	// Total of all hosts that have joined.
	// +kubebuilder:default=0
	// +optional
	Total int32 `json:"total"`
	// Updated hosts have the revision.
	// +kubebuilder:default=0
	// +optional
	Updated int32 `json:"updated"`
	// Staged hosts have the revision's payload. They have the revision, or wait for a slot in the rollout budget.
	// +kubebuilder:default=0
	// +optional
	Staged int32 `json:"staged"`
	// Unavailable hosts have joined but are not Ready, or are being updated or rebooted.
	// +kubebuilder:default=0
	// +optional
	Unavailable int32 `json:"unavailable"`
	// Message says what the rollout waits for, or why it is halted and how to continue.
	// +optional
	Message string `json:"message,omitempty"`
	// Failures at this revision, the newest 20.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +optional
	Failures []RolloutFailure `json:"failures,omitempty"`
}

// OperatorStatus names the operator that manages the Windows nodes of this cluster. While this operator is
// installed, a second operator in another namespace does nothing.
type OperatorStatus struct {
	// Namespace of the operator.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// RenewTime is when the operator last renewed this claim. It renews the claim every five minutes.
	// +optional
	RenewTime *metav1.Time `json:"renewTime,omitempty"`
}

// WindowsMachineConfigStatus is the state of all Windows nodes together.
type WindowsMachineConfigStatus struct {
	// Operator is the operator that manages the Windows nodes of this cluster.
	// +optional
	Operator OperatorStatus `json:"operator,omitempty"`
	// Instances are the numbers of instances by state.
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
	// Kubelet is the configuration that kubelets get.
	// +optional
	Kubelet KubeletStatus `json:"kubelet,omitempty"`
	// DesiredRevision is the published revision that nodes should have. While a problem prevents the publication of
	// the next revision, this field stays unchanged.
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
	// ObservedGeneration is the generation of the spec that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// WindowsMachineConfig holds the settings of all Windows nodes. There is only one object, named cluster.
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
