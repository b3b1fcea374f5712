// Package workload finds pods on Windows nodes that can't run there, and pods for Windows that no node will ever take.
//
// Every five minutes it lists the pods of each Windows node, and the pending pods. It has no cache of the cluster's
// pods. It reports findings in events at the pods' owners and in a metric. The instance controller asks it about a
// node. It changes nothing. Package policy decides whether a pod can run. The owner of a pod may be in any namespace,
// so the operator may create events in every namespace. It doesn't read or change events.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create
package workload
