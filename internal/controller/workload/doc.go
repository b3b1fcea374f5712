// Package workload finds pods on Windows nodes that can't run there, and Windows pods that no node can ever run.
//
// Every five minutes, it lists the pods on each Windows node, and the pending pods. It doesn't cache the cluster's
// pods. It reports findings in a metric, and in events about the pods' owners. The instance controller asks it about
// the pods on a node. Package policy decides whether a pod can run. The owner of a pod may be in any namespace, so the
// operator may create events in every namespace. It doesn't read or change events.
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create
package workload
