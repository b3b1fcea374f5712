// Package cluster reads the facts about a cluster that its Windows nodes need: it reads them with a client, checks
// them, and fills in blueprint.Facts.
//
// The publisher uses it through Source. Reader reads OpenShift's objects. Plain reads the objects of any other cluster,
// and its rights are in config/kubernetes/rights. The package treats all content as hostile until it is parsed. If an
// object is missing or wrong, the error contains *contract.Problem values, all of them at once. Each names the object
// and the fix. Settings that an administrator may change at any time, such as mirrors and CA bundles, are passed on
// unchanged: blueprint decides which parts can be applied. If an object is absent or can't be read, the last read value
// stays in force: see last. The package also returns the settings in force: see Settings. It writes nothing, and
// decides nothing about nodes.
//
// Reader's rights are below. Objects that are watched through the manager's cache, each by its name (see Inputs), need
// list and watch. The other objects are read live when something changed, and every ten minutes: the bootstrap Secret
// for safety, rendered MachineConfigs because of their size, and ServiceCIDRs because not every cluster has them.
// ConfigMaps in openshift-config can't be listed here, because administrators choose their names. Every identity may
// request the server's version.
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
