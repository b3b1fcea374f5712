// Package config answers the question "what is applied to a cluster so that the operator can run there?" It holds the
// manifests, which kubectl applies: default/ on a real cluster, lab/ in the lab, monitoring/ where the Prometheus
// operator runs, dashboard/ for Grafana or OpenShift's console, machine-api/ and cluster-api/ where the namespaces of
// these APIs exist, workload/ where Kubernetes is 1.36 or later, samples/ to start from.
//
// The only code is Files, which package olm imports. The tests apply the manifests to a real API server. Custom
// resource definitions (crd/) and the operator's rights (rbac/role.yaml) are generated from the markers in the code,
// by make generate, and never edited.
package config

// Rights of the operator's process apart from its controllers: the leader's lease, reviews of clients that scrape its
// metrics, and the CAs that sign the certificates of daemons. The right to create a lease can't be limited to a name,
// because a request to create has no name.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=windows-machine-config-operator-lock,verbs=get;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication,verbs=list;watch,namespace=kube-system
