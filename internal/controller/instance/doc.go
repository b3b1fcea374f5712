// Package instance reconciles WindowsInstances. It decides what an instance needs, takes the next step, and reports the
// result in the status, in events and in metrics. The packages in internal/instance implement the steps.
//
// Only this package writes the status of a WindowsInstance. Exception: package csr records the key of a Machine's host
// in the status. This package also writes the operator's labels, annotations and taints on Nodes. Exception: package
// orphan writes them on Nodes without an instance.
package instance

// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=get;list;watch;patch;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances/status,verbs=patch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsmachineconfigs,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=pods/eviction,verbs=create
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=get
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=create;list;watch
// +kubebuilder:rbac:groups="",resources=serviceaccounts/token,resourceNames=node-bootstrapper,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;delete;patch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles;rolebindings,verbs=create,namespace=openshift-windows-machine-config-operator
