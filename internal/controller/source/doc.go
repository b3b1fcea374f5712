// Package source creates a WindowsInstance for each entry of the ConfigMap windows-instances.
//
// The operator runs it. It creates and deletes only instances whose source is this ConfigMap. In the spec of such an
// instance, it writes only the fields that the entry sets. It never connects to a host.
package source

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=windows-instances,verbs=get,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=get;list;watch;create;patch;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=openshift-windows-machine-config-operator
