// Package csr decides about the certificate requests of our hosts. It gathers the facts about a request, lets the
// policy decide, and writes the decision. The operator runs it.
//
// It approves or denies only requests for nodes and hosts of known instances. It ignores all other requests, and sends
// the API server nothing about them. It never opens a connection to a host.
package csr

// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=get;list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances/status,verbs=patch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get,namespace=openshift-machine-api
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests,verbs=list;watch
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=certificatesigningrequests/approval,verbs=update
// +kubebuilder:rbac:groups=certificates.k8s.io,resources=signers,resourceNames=kubernetes.io/kube-apiserver-client;kubernetes.io/kube-apiserver-client-kubelet;kubernetes.io/kubelet-serving,verbs=approve
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=openshift-windows-machine-config-operator
