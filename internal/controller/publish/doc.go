// Package publish renders the desired state of nodes from the facts of the cluster. It publishes this state as the
// ConfigMap windows-services-<revision>. The Secret with the same name contains the confidential part. The package
// deletes unused revisions.
//
// The operator runs it. The journeys of internal/instance and the controller of the settings read the result from
// Source. The package never writes to a Node, so it never changes a node's revision.
//
//	ensure  facts, settings  → Secret and ConfigMap of the current revision, Secrets windows-services-latest and
//	                           windows-services-memory, ConfigMaps windows-payload-source and trusted-ca, Role
//	                           windows-services-reader
//	sweep   Nodes, instances → ConfigMaps and Secrets of other revisions: deleted when nothing has used them for a
//	                           grace period, which is checked at least every ten minutes
//
// The name of a revision contains the digest of its content, so the content of a revision's objects never changes. New
// content is published in new objects, before the name of the new revision is written to any Node.
//
// The rights to Secrets can't be limited to names: the names of revisions are not known in advance. The operator also
// needs these rights because it can only grant daemons a right that it has itself.
package publish

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch;create;update;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=secrets,verbs=list;watch;create;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=windows-services-memory,verbs=get;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=windows-services-latest,verbs=update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=roles,resourceNames=windows-services-reader,verbs=list;watch;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsmachineconfigs,resourceNames=cluster,verbs=list;watch
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=list;watch,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=openshift-windows-machine-config-operator
