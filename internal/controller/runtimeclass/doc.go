// Package runtimeclass keeps a RuntimeClass for each build of Windows Server that the cluster has
// nodes of, so that a pod gets to a node that can run its image by one field.
//
// The operator runs it. It makes windows2019, windows2022 and windows2025, restores what somebody
// changed in them, and deletes one when no node has had its build for 30 days and no pod uses it. It
// leaves alone what it did not make. spec.runtimeClasses of the WindowsMachineConfig turns it off.
package runtimeclass

// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=list;watch;create
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,resourceNames=windows2019;windows2022,verbs=update;delete
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,resourceNames=windows2025,verbs=update;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default
