// Package machine projects Machines of the Machine API that run Windows onto WindowsInstances, one
// instance for each Machine whose host can be reached, and deletes Machines whose hosts don't let
// us in, so that their sets make others. It writes nothing on MachineSets.
//
// The operator runs it; without the Machine API, or rights there, it rests, and begins by itself when
// both are there.
// It writes only what Machines tell of an instance's spec, creates and deletes the instances that
// have a Machine as their source, and never touches a host. What Machines come to is the
// inventory's business, and whether one may be deleted the policy's.
package machine

// +kubebuilder:rbac:groups=machine.openshift.io,resources=machines,verbs=get;list;watch;delete,namespace=openshift-machine-api
// +kubebuilder:rbac:groups=machine.openshift.io,resources=machinesets,verbs=list;watch,namespace=openshift-machine-api
// +kubebuilder:rbac:groups=windowsmachineconfig.openshift.io,resources=windowsinstances,verbs=get;list;watch;create;patch;delete,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=create,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups="",resources=configmaps,resourceNames=windows-machine-replacements,verbs=get;update,namespace=openshift-windows-machine-config-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=openshift-machine-api
