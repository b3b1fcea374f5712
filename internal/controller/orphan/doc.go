// Package orphan answers what becomes of a Node with our daemon that has no WindowsInstance: such a
// host was let go without being cleaned, and came back.
//
// The operator runs it. It cordons such a Node and reports it, and has the daemon of a host whose
// removal was forced clean that host. It deletes a Node that was registered by a host while its Machine
// was deleted. It leaves alone every Node that an instance has or may get.
package orphan

// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=get;list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch;create;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default
