package contract

// ClusterAPINamespace is the namespace of Cluster API's Machines, on clusters with Cluster API.
const ClusterAPINamespace = "openshift-cluster-api"

// Names for the user data of machines at their first boot.
const (
	// UserDataSecret contains the script under UserDataField, in MachineAPINamespace and ClusterAPINamespace. The
	// provider spec of a Machine names this Secret.
	UserDataSecret = "windows-user-data"
	UserDataField  = "userData"
	// HostKeySecret in the operator's namespace contains the SSH host key under HostKeyField. The script gives this key
	// to every machine for the first connection of the operator.
	HostKeySecret = "windows-ssh-host-key"
	HostKeyField  = "private-key.pem"
	// HostKeyPublishedAnnotation on UserDataSecret is when the Secret's script got the host key, in RFC 3339.
	HostKeyPublishedAnnotation = Prefix + "in-user-data"
	// ReplacementsConfigMap in the operator's namespace lists, for each MachineSet, the Machines replaced in vain.
	ReplacementsConfigMap = "windows-machine-replacements"
	// SlotsConfigMap in the operator's namespace lists the slots of the rollout budget.
	SlotsConfigMap = "windows-rollout-places"
	// ManagedByLabel = OperatorServiceAccount marks objects that the operator created.
	ManagedByLabel = "app.kubernetes.io/managed-by"
)
