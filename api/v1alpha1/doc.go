// Package v1alpha1 is the API group windowsmachineconfig.openshift.io. A WindowsInstance is a Windows host on its
// way to becoming a node. The WindowsMachineConfig holds the settings of all Windows nodes.
//
// The operator writes the status. Users write the spec of the WindowsMachineConfig and, if they want, of single
// WindowsInstances.
//
// +kubebuilder:object:generate=true
// +groupName=windowsmachineconfig.openshift.io
package v1alpha1
