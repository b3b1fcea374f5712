// Package config contains the manifests of the operator. kubectl applies them: default/ on a real cluster, lab/ in the
// lab, monitoring/ on clusters with the Prometheus operator, dashboard/ for Grafana or the console of OpenShift,
// machine-api/ and cluster-api/ on clusters that have the namespaces of these APIs, and workload/ on Kubernetes 1.36 or
// later. samples/ contains examples to start from.
//
// The only code is the variable Files, which package olm imports. The tests apply the manifests to a real API server.
// `make generate` generates the custom resource definitions (crd/) and the operator's rights (rbac/role.yaml) from
// markers in the code. Don't edit these files.
package config

// Rights that the operator needs outside its controllers: to write the leader's lease, to review clients that scrape
// its metrics, and to read the CAs that sign the certificates of daemons. The right to create a lease can't be limited
// to one name, because a create request isn't authorized by name.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=windows-machine-config-operator-lock,verbs=get;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication,verbs=list;watch,namespace=kube-system
