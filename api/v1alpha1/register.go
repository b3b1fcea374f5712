package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of this package.
const Group = "windowsmachineconfig.openshift.io"

// GroupVersion is the group and version of this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: "v1alpha1"}
}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(),
		&WindowsInstance{}, &WindowsInstanceList{},
		&WindowsMachineConfig{}, &WindowsMachineConfigList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}
