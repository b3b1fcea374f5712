package contract

// ClusterAPINamespace is where Cluster API has its Machines, on clusters that have it.
const ClusterAPINamespace = "openshift-cluster-api"

// Names for the user data of machines at their first boot.
const (
	// UserDataSecret holds the script, under UserDataField, in MachineAPINamespace and
	// ClusterAPINamespace. Machines name it in their provider spec.
	UserDataSecret = "windows-user-data"
	UserDataField  = "userData"
	// HostKeySecret in the operator's namespace holds the SSH host key, under HostKeyField. The script gives this
	// key to every machine for the first contact.
	HostKeySecret = "windows-ssh-host-key"
	HostKeyField  = "private-key.pem"
	// HostKeyPublishedAnnotation on UserDataSecret is the time when the host key was added to its script, in RFC
	// 3339.
	HostKeyPublishedAnnotation = Prefix + "in-user-data"
	// WaySinceAnnotation on UserDataSecret is the time when its script changed from joining over SSH to joining without
	// SSH, or back, in RFC 3339. Earlier Machines have the other script.
	WaySinceAnnotation = Prefix + "way-since"
	// ReplacementsConfigMap in the operator's namespace lists the Machines of each set that were replaced without
	// success.
	ReplacementsConfigMap = "windows-machine-replacements"
	// SlotsConfigMap in the operator's namespace lists the slots of the rollout budget.
	SlotsConfigMap = "windows-rollout-places"
	// ManagedByLabel = OperatorServiceAccount marks objects that the operator created.
	ManagedByLabel = "app.kubernetes.io/managed-by"
)
