// Package userdata publishes the key that new machines must accept. Without a key, it publishes the command with which
// their hosts join by themselves. It keeps the secret windows-user-data in the namespaces where clouds read user data.
// It also keeps the SSH host key that identifies a machine at the first contact.
//
// The operator runs it. The journeys of internal/instance ask FirstContact which host key a machine shows at first. It
// writes these secrets and nothing else: a changed script affects no existing Machine.
//
//	cloud-private-key ──▶ public key ─┐ (or, without it, a command with a token)
//	windows-ssh-host-key ─────────────┼─▶ windows-user-data in openshift-machine-api,
//	platform ─────────────────────────┘   and in openshift-cluster-api where that exists
//
// These namespaces may be missing, and the operator may lack rights in them. The manager's cache would wait for both.
// So the operator reads the two secrets live, every 20 seconds. The rights in openshift-cluster-api are in
// config/cluster-api. Secrets of the operator's own namespace are in the manager's cache; package publish declares the
// rights to list, watch and create them.
package userdata

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=openshift-machine-api
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=windows-user-data,verbs=get;update,namespace=openshift-machine-api
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=openshift-machine-api;openshift-cluster-api,verbs=get
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get,namespace=openshift-machine-api
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default
