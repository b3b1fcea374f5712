// Package orphan handles Nodes that run our daemon but have no WindowsInstance. Their hosts were released without being
// cleaned, and registered as Nodes again.
//
// The operator runs it. It cordons and reports such a Node. If the removal of the host was forced, it lets the daemon
// clean the host. If a host registered a Node while its Machine was being deleted, the package deletes this Node. It
// ignores a Node that may soon belong to an instance. If a Node gets an instance, the package undoes its changes.
package orphan

// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=get;list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch;create;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default
