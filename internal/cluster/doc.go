// Package cluster answers what the cluster is like that Windows hosts are to join: it reads facts
// with a client, checks them, and fills in blueprint.Facts.
//
// The publisher uses it through Source. Reader reads OpenShift's objects; Plain reads those of any
// other cluster, and its rights are in config/kubernetes/rights. Everything read is taken for
// hostile until it is parsed. What is missing or wrong comes back as *contract.Problem values that
// name the object and what to do, all of them at once. What an administrator may write on day 2, such
// as mirrors and CA bundles, is handed on as it was written: blueprint decides what of it can be
// followed. If an object is absent or can't be read, what was read last stays in force: see last. It also
// gives the settings in force: see Settings. It writes nothing, and decides nothing about nodes.
//
// Reader's rights stand below. What is watched through the manager's cache, each object by its name
// (see Inputs), has list and watch; the others are read live when something changed, and every ten
// minutes: the bootstrap Secret for safety, rendered MachineConfigs for their size, ServiceCIDRs
// because not every cluster has them. ConfigMaps in openshift-config can't be named here, because
// administrators name them. Every identity may ask for the server's version.
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
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,resourceNames=imagedigestmirrorsets.config.openshift.io;imagetagmirrorsets.config.openshift.io;imagecontentsourcepolicies.operator.openshift.io;machines.machine.openshift.io;windowsinstances.windowsmachineconfig.openshift.io,verbs=get
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
