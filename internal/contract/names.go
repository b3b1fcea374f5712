package contract

// Namespaces that the operator reads or writes.
const (
	OperatorNamespace      = "openshift-windows-machine-config-operator"
	MachineAPINamespace    = "openshift-machine-api"
	MachineConfigNamespace = "openshift-machine-config-operator"
	ConfigNamespace        = "openshift-config"
)

// Identities.
const (
	// OperatorServiceAccount is the ServiceAccount of the operator, in OperatorNamespace.
	OperatorServiceAccount = "windows-machine-config-operator"
	// BootstrapServiceAccount, in the operator's namespace, is the identity for kubelets' first certificate requests.
	BootstrapServiceAccount = "node-bootstrapper"
	// CredentialIDExtra is a key in a requester's extra fields. The API server stores the token's ID there.
	CredentialIDExtra = "authentication.kubernetes.io/credential-id"
	// BootstrapSecretPrefix, followed by the UID of an instance, is the name of a Secret in the operator's namespace.
	// The bootstrap tokens of the instance's join are bound to this Secret. When the Secret is deleted, the tokens
	// become invalid. BootstrapSecretType is the type of the Secret.
	BootstrapSecretPrefix = "windows-bootstrap-"
	BootstrapSecretType   = "windowsmachineconfig.openshift.io/bootstrap"
	// DaemonUserPrefix, followed by a node name, is the user name in a daemon's certificate.
	DaemonUserPrefix = "system:wicd-node:"
	// CloudNodeServiceAccount is the identity of Azure's node manager, in OperatorNamespace. Each daemon requests
	// tokens for this identity. The tokens are bound to the daemon's own Node.
	CloudNodeServiceAccount = "azure-cloud-node-manager"
	// FlannelServiceAccount is flanneld's identity, in OperatorNamespace. Daemons request its tokens in the same way.
	FlannelServiceAccount = "flanneld"
	// DaemonGroup is the group of every daemon's certificate.
	DaemonGroup = "system:wicd-nodes"
	// KubeletUserPrefix, followed by a node name, is the user name in a kubelet's certificate.
	KubeletUserPrefix = "system:node:"
	// KubeletGroup is the group of every kubelet's certificate.
	KubeletGroup = "system:nodes"
)

// Names of objects.
const (
	// InstanceCRD and MachineCRD are the CustomResourceDefinitions of WindowsInstances and of OpenShift's Machines.
	InstanceCRD = "windowsinstances.windowsmachineconfig.openshift.io"
	MachineCRD  = "machines.machine.openshift.io"
	// InstancesConfigMap lists bring-your-own hosts: address → "username=<name>".
	InstancesConfigMap = "windows-instances"
	// ServicesConfigMapPrefix, followed by a revision, is the name of the ConfigMap with a services manifest.
	ServicesConfigMapPrefix = "windows-services-"
	// ServicesSecretPrefix, followed by a revision, is the name of the Secret with the Confidential of a manifest.
	ServicesSecretPrefix = ServicesConfigMapPrefix
	// ServicesReaderRole is the Role that lets the daemons' group read the published manifests and Secrets. Its
	// resourceNames list these objects.
	ServicesReaderRole = "windows-services-reader"
	// ReleasedConfigMap lists the nodes whose hosts were removed by force: node name → time.
	ReleasedConfigMap = "windows-released-nodes"
	// PrivateKeySecret contains the SSH key under PrivateKeyField.
	PrivateKeySecret = "cloud-private-key"
	PrivateKeyField  = "private-key.pem"
	// BootstrapTokenSecret is in MachineConfigNamespace and contains the cluster's CA for bootstrapping kubelets.
	BootstrapTokenSecret = "node-bootstrapper-token"
	// TrustedCAConfigMap is in the operator's namespace. If it has InjectTrustedCALabel, the cluster writes the
	// proxy's CA bundle to it, under CABundleField.
	TrustedCAConfigMap   = "trusted-ca"
	CABundleField        = "ca-bundle.crt"
	InjectTrustedCALabel = "config.openshift.io/inject-trusted-cabundle"
	// PullSecret is in ConfigNamespace and contains the cluster's credentials for registries, as .dockerconfigjson.
	PullSecret = "pull-secret"
	// LeaderLease is the operator's leader lock.
	LeaderLease = "windows-machine-config-operator-lock"
	// MachineConfigObject is the only allowed name of a WindowsMachineConfig.
	MachineConfigObject = "cluster"
)

// Ports of SSH and of a node's services.
const (
	SSHPort     = 22
	KubeletPort = 10250
	MetricsPort = 9182
	// MirrorPort is the port of the node-local mirror resolver, on 127.0.0.1 only.
	MirrorPort = 9184
)

// BootstrapUser is the user name of BootstrapServiceAccount.
func BootstrapUser(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + BootstrapServiceAccount
}
