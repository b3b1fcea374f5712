// Package workload answers which pods are on a Windows node and can't run there, and which pods for
// Windows no node will ever take.
//
// Every five minutes it asks for the pods of each Windows node, and for those that are pending: it
// has no cache of the cluster's pods. What it finds is an event at the pod's owner and a metric; the
// instance controller asks it for what it found on a node. It changes nothing; the decisions are in
// package policy. What made a pod may be in any namespace, so events may be created in each; none is
// read or changed.
//
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create
package workload
