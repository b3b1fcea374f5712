// Package rights declares the rights that the operator has only on a cluster without OpenShift: controller-gen writes
// role.yaml from the markers below. Nothing imports it.
//
// They are separate from the rights of internal/cluster because a Role can't be created in a missing namespace:
// ../rights omits the Roles for namespaces of OpenShift.
package rights

// internal/cluster reads these objects by name. Exception: it finds the DNS Service by a label, because that Service
// may have any name.
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=cluster-info,verbs=get,namespace=kube-public
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=extension-apiserver-authentication;kubeadm-config,verbs=get,namespace=kube-system
// +kubebuilder:rbac:groups="",resources=services,verbs=list,namespace=kube-system
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,resourceNames=kubernetes,verbs=get
