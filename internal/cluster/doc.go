// Package cluster answers what the cluster is like that Windows hosts are to join: it reads facts with a client, checks them, and fills in
// blueprint.Facts.
//
// The publisher uses it through Source, which is the seam for clusters other than OpenShift; Reader is OpenShift's. Everything read is taken for
// hostile until it is parsed. What is missing or wrong comes back as *contract.Problem values that name the object and what to do, all of them at once.
// It writes nothing, and decides nothing about nodes.
//
// Reader's rights stand below. What is watched through the manager's cache, each object by its name (see Inputs), has list and watch; the others are read live
// when something changed, and every ten minutes: the Secret for safety, rendered MachineConfigs for their size. Every identity may ask for the server's
// version.
package cluster

// +kubebuilder:rbac:groups=config.openshift.io,resources=infrastructures;networks,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups=operator.openshift.io,resources=networks,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=controllerconfigs,resourceNames=machine-config-controller,verbs=list;watch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,resourceNames=worker,verbs=list;watch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=node-bootstrapper-token,verbs=get,namespace=openshift-machine-config-operator
