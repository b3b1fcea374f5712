// Package machine creates a WindowsInstance for each Machine of the Machine API that runs Windows and whose host can be
// reached. It also deletes Machines whose hosts refuse the private key, so that their sets create replacements.
//
// The operator runs it. Without the Machine API, or without the rights to read it, the package waits. It never writes a
// MachineSet and never contacts a host. Package inventory interprets a Machine, and package policy decides whether a
// Machine may be deleted.
package machine

// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list;watch;delete,namespace=openshift-machine-api
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets,verbs=list;watch,namespace=openshift-machine-api
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=get;list;watch;create;patch;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=windows-machine-replacements,verbs=get;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=openshift-machine-api
