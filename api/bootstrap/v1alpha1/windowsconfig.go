package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// UserDataFormat is how a bootstrap script is wrapped for the program that runs it at the first boot.
// +kubebuilder:validation:Enum=cloudbase-init;ec2launch;plain
type UserDataFormat string

// Formats of user data.
const (
	FormatCloudbaseInit UserDataFormat = "cloudbase-init" // begins with #ps1_sysnative
	FormatEC2Launch     UserDataFormat = "ec2launch"      // is in a <powershell> element
	FormatPlain         UserDataFormat = "plain"          // is only the script, for Windows PowerShell
)

// Condition types of a WindowsConfig.
const (
	// ConditionConfigReady is True when the bootstrap data of the Machine exists.
	ConditionConfigReady = "Ready"
	// ConditionInstanceReady is the condition Ready of the WindowsInstance in the workload cluster.
	ConditionInstanceReady = "InstanceReady"
	// ConditionVersionMatches is False if kubelet and Machine have different minor versions of Kubernetes.
	ConditionVersionMatches = "VersionMatches"
)

// WindowsConfigSpec says how the Machine of a WindowsConfig gets its bootstrap data.
// +kubebuilder:object:generate=false
type WindowsConfigSpec struct {
	// Format of the bootstrap data, for the program that runs the data at the first boot.
	// +kubebuilder:default=cloudbase-init
	// +optional
	Format UserDataFormat `json:"format,omitempty"`
	// ByItself has the settings of the host's join. The host always joins by itself.
	// +optional
	ByItself v1alpha1.ByItself `json:"byItself,omitempty,omitzero"`
}

// WindowsConfigInitialization is what Cluster API waits for.
// +kubebuilder:object:generate=false
type WindowsConfigInitialization struct {
	// DataSecretCreated is true when the Secret with the bootstrap data exists.
	// +optional
	DataSecretCreated bool `json:"dataSecretCreated,omitempty"`
}

// WindowsConfigStatus is the state of the bootstrap data.
type WindowsConfigStatus struct {
	// Initialization is what Cluster API waits for.
	// +optional
	Initialization WindowsConfigInitialization `json:"initialization,omitempty,omitzero"`
	// DataSecretName is the name of the Secret with the bootstrap data.
	// +kubebuilder:validation:MaxLength=253
	// +optional
	DataSecretName string `json:"dataSecretName,omitempty"`
	// Conditions are Ready, InstanceReady and VersionMatches.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// WindowsConfig is the bootstrap configuration of one Machine of Cluster API. The Machine becomes a node if its image
// has Windows Server and cloudbase-init or EC2Launch.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/provider=bootstrap-windows"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Instance",type=string,JSONPath=`.status.conditions[?(@.type=="InstanceReady")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="InstanceReady")].message`
type WindowsConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec WindowsConfigSpec `json:"spec,omitempty,omitzero"`
	// +optional
	Status WindowsConfigStatus `json:"status,omitempty,omitzero"`
}

// WindowsConfigList is a list of WindowsConfig.
// +kubebuilder:object:root=true
type WindowsConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WindowsConfig `json:"items"`
}

// WindowsConfigTemplateResource is the WindowsConfig that Cluster API creates for each Machine.
// +kubebuilder:object:generate=false
type WindowsConfigTemplateResource struct {
	// +optional
	Spec WindowsConfigSpec `json:"spec,omitempty,omitzero"`
}

// WindowsConfigTemplateSpec holds the template.
// +kubebuilder:object:generate=false
type WindowsConfigTemplateSpec struct {
	Template WindowsConfigTemplateResource `json:"template"`
}

// WindowsConfigTemplate is the bootstrap configuration of a MachineDeployment of Cluster API. Only Cluster API reads
// it.
// +kubebuilder:object:root=true
// +kubebuilder:object:generate=false
// +kubebuilder:resource:categories=cluster-api
// +kubebuilder:metadata:labels="cluster.x-k8s.io/v1beta2=v1alpha1"
// +kubebuilder:metadata:labels="cluster.x-k8s.io/provider=bootstrap-windows"
type WindowsConfigTemplate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WindowsConfigTemplateSpec `json:"spec"`
}
