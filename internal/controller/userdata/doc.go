// Package userdata publishes the key that the hosts of new Machines must accept or, without a key, a command that makes
// these hosts join by themselves. Both are in the Secret windows-user-data in the namespaces where clouds read user
// data. The package also maintains the SSH host key that identifies a Machine's host at first contact.
//
// The operator runs it. The journeys of internal/instance ask FirstContact which host key a host should have at first
// contact. The package writes only these Secrets. A change of the script affects only new Machines.
//
//	cloud-private-key ──▶ public key ─┐ (or, without it, a command with a token)
//	windows-ssh-host-key ─────────────┼─▶ windows-user-data in openshift-machine-api,
//	platform ─────────────────────────┘   and in openshift-cluster-api where that exists
//
// These namespaces may be missing, and the operator may lack rights in them. In both cases, the manager's cache would
// wait forever. So the operator reads windows-user-data from the API server, every 20 seconds in each namespace. The
// rights in openshift-cluster-api are in config/cluster-api. The manager's cache contains the Secrets in the operator's
// own namespace. Package publish declares the rights to list, watch and create these.
package userdata

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=openshift-machine-api
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=windows-user-data,verbs=get;update,namespace=openshift-machine-api
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=openshift-machine-api;openshift-cluster-api,verbs=get
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get,namespace=openshift-machine-api
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default
