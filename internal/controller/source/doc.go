// Package source creates a WindowsInstance for each entry of the windows-instances ConfigMap.
//
// The operator runs it. It writes only the fields of an instance's spec that the entry sets. It creates and deletes
// the instances that have the ConfigMap as their source. It never connects to a host.
package source

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=windows-instances,verbs=get,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=get;list;watch;create;patch;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=openshift-windows-machine-config-operator
