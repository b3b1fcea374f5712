// Package cluster reads the facts about a cluster that its Windows nodes need, checks them, and fills in
// blueprint.Facts.
//
// The publisher uses the package through Source. Reader reads OpenShift's objects. Plain reads the objects of any other
// cluster, with the rights in config/kubernetes/rights. The package treats all content as hostile until it has parsed
// the content. It writes no objects, and makes no decisions about nodes.
//
// If an object is missing, unreadable or wrong, but an earlier value is known, this value stays in force, and
// facts.Troubles contains a *contract.Problem with the object's name and the fix. Without an earlier value, the error
// contains the Problem. Exception: blueprint, not this package, checks the settings that an administrator may change at
// any time, such as mirrors and CA bundles.
//
// The rights of Reader are below. The manager's cache lists and watches the objects of Inputs. After a change of an
// input and every ten minutes, the operator reads other objects from the API server: the bootstrap Secret (no cache
// should contain it), rendered MachineConfigs (they are large) and ServiceCIDRs (not every cluster has them). The
// rights cover all ConfigMaps in openshift-config, because administrators choose their names. Everyone may read the
// server's version.
package cluster

// +kubebuilder:rbac:groups=config.openshift.io,resources=infrastructures;networks;proxies;images,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups=config.openshift.io,resources=imagedigestmirrorsets;imagetagmirrorsets,verbs=list;watch
// +kubebuilder:rbac:groups=operator.openshift.io,resources=imagecontentsourcepolicies,verbs=list;watch
// +kubebuilder:rbac:groups=operator.openshift.io,resources=networks,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=controllerconfigs,resourceNames=machine-config-controller,verbs=list;watch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigpools,resourceNames=worker,verbs=list;watch
// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=machineconfigs,verbs=get
// +kubebuilder:rbac:groups=networking.k8s.io,resources=servicecidrs,verbs=list
// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,resourceNames=kubernetes,verbs=get
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=node-bootstrapper-token,verbs=get,namespace=openshift-machine-config-operator
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=pull-secret,verbs=list;watch,namespace=openshift-config
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch,namespace=openshift-config
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=machines.machine.openshift.io;windowsinstances.windowsmachineconfig.openshift.io,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
