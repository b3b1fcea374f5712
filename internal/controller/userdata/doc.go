// Package userdata publishes the user data of new Machines. This user data contains the SSH key that their hosts must
// accept or, without a key, a command that makes these hosts join by themselves. The package also maintains the SSH
// host key that identifies a Machine's host at first contact.
//
// The operator runs it. The journeys of internal/instance ask FirstContact which host key a host should have at first
// contact. A change of the user data affects only new Machines.
//
//	cloud-private-key ──▶ public key ─┐ (or, without it, a command with a token)
//	windows-ssh-host-key ─────────────┼─▶ windows-user-data in openshift-machine-api,
//	platform ─────────────────────────┘   and in openshift-cluster-api where that exists
//
// The rights in openshift-cluster-api are in config/cluster-api. Package publish declares the rights to list, watch and
// create Secrets in the operator's own namespace.
package userdata

// +kubebuilder:rbac:groups="",resources=secrets,verbs=create,namespace=openshift-machine-api
// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=windows-user-data,verbs=get;update,namespace=openshift-machine-api
// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=openshift-machine-api;openshift-cluster-api,verbs=get
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get,namespace=openshift-machine-api
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=default
