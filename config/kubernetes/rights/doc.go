// Package rights answers which rights the operator has on a cluster without OpenShift, beside those
// that it has everywhere: controller-gen writes role.yaml of the markers below. Nothing imports it.
//
// They stand apart from those of internal/cluster because a Role can't be made in a namespace that is
// not there: ../rights leaves out the Roles for namespaces of OpenShift.
package rights

// What internal/cluster reads there, each by its name. Services of DNS have a label, and any name.
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=cluster-info,verbs=get,namespace=kube-public
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=kubeadm-config,verbs=get,namespace=kube-system
// +kubebuilder:rbac:groups="",resources=services,verbs=list,namespace=kube-system
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,resourceNames=kubernetes,verbs=get
