// Package v1alpha1 is the API group bootstrap.windowsmachineconfig.openshift.io. A WindowsConfig is the bootstrap
// configuration of a Machine of Cluster API. It is in the management cluster.
//
// +kubebuilder:object:generate=true
// +groupName=bootstrap.windowsmachineconfig.openshift.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of this package.
const Group = "bootstrap.windowsmachineconfig.openshift.io"

// GroupVersion is the group and version of this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1alpha1"}
}

// AddToScheme adds to a scheme the types that the bootstrap provider reads. Only Cluster API reads templates.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &WindowsConfig{}, &WindowsConfigList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
