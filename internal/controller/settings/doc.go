// Package settings maintains the WindowsMachineConfig named cluster. It writes the status from the prerequisites, the
// instances, the rejected entries and settings, and the problems of other controllers. It claims the Windows nodes, in
// case there are two operators. If OLM installed the operator, the package tells OLM whether an upgrade is safe.
//
// The operator runs it. It makes no decisions about hosts.
package settings

// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsmachineconfigs,verbs=create
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsmachineconfigs,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsmachineconfigs/status,resourceNames=cluster,verbs=patch
