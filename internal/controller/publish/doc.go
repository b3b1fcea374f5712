// Package publish answers where nodes find what they must look like: it renders the desired state
// from the facts of the cluster, publishes it as the ConfigMap windows-services-<revision>, with
// what must not be public in the Secret of that name, and takes away the revisions that nobody uses
// any more.
//
// The operator runs it; the journeys of internal/instance and the controller of the settings read
// the result from Source. It never touches a Node, and moves none to another revision. Two
// controllers share the work, so that every object has one writer:
//
//	publish  facts, settings → Secret and ConfigMap of the current revision, Secret
//	                           windows-services-latest, ConfigMap windows-payload-source,
//	                           Role windows-services-reader, ConfigMap trusted-ca
//	retire   Nodes, instances → ConfigMaps of other revisions: marked when nothing uses them,
//	                           deleted after a while, and then their Secrets
//
// A revision is named by the digest of its content, so its objects never change: new content is new
// objects, published before any node is told of them.
//
// The rights to Secrets can't be bound to names, because revisions are not known beforehand, and
// because who lets others read something must be allowed to read it.
package publish

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch;create;update;patch;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch;create;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=windows-services-memory,verbs=get;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,resourceNames=windows-services-reader,verbs=list;watch;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsmachineconfigs,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=openshift-windows-machine-config-operator
