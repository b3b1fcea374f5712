// Package cluster reads the facts about a cluster that its Windows nodes need: it reads them with a client, checks
// them, and fills in blueprint.Facts.
//
// The publisher uses the package through Source. Reader reads OpenShift's objects. Plain reads the objects of any other
// cluster. The rights of Plain are in config/kubernetes/rights. The package treats all content as hostile until it has
// parsed the content. If objects are missing or wrong, the error contains a *contract.Problem for each of them, with
// the object's name and the fix. The package doesn't check settings that an administrator may change at any time, such
// as mirrors and CA bundles: blueprint decides which parts of them can be applied. If an object is missing or can't be
// read, the value that was read last stays in force: see last. The package also returns the settings in force: see
// Settings. It writes no objects, and makes no decisions about nodes.
//
// The rights of Reader are below. The manager's cache watches the objects of Inputs, which needs list and watch. The
// operator reads other objects directly from the API server, after a change of an input and every ten minutes: the
// bootstrap Secret for safety, rendered MachineConfigs because of their size, and ServiceCIDRs because not every
// cluster has them. The rights cover all ConfigMaps in openshift-config, because administrators choose the names of
// their ConfigMaps. Every identity may request the server's version without a right.
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
