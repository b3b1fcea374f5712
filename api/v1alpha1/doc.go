// Package v1alpha1 is the API group windowsmachineconfig.openshift.io: WindowsInstance, one Windows
// host on its way to being a node, and WindowsMachineConfig, the settings of all of them.
//
// The operator writes status; users write the spec of WindowsMachineConfig and, where they like, of
// single WindowsInstances.
//
// +kubebuilder:object:generate=true
// +groupName=windowsmachineconfig.openshift.io
package v1alpha1
