package contract

// Prefix starts every label and annotation of the operator and the daemon.
const Prefix = "windowsmachineconfig.openshift.io/"

// Labels.
const (
	// BYOHLabel = "true" marks a node that came from the windows-instances ConfigMap.
	BYOHLabel = Prefix + "byoh"
	// UpgradingLabel marks a node with a slot in the rollout budget.
	UpgradingLabel = Prefix + "upgrading"
	// IgnoreLabel = "true" on a Machine makes the operator ignore the Machine.
	IgnoreLabel = Prefix + "ignore"
	// WorkerLabel is the role label of worker nodes; its value is empty.
	WorkerLabel = "node-role.kubernetes.io/worker"
	// OSIDLabel = OSIDWindows marks Windows nodes. kubelet sets it at registration.
	OSIDLabel   = "node.openshift.io/os_id"
	OSIDWindows = "Windows"
	// MachineOSLabel = OSIDWindows on a Machine selects it for the operator.
	MachineOSLabel = "machine.openshift.io/os-id"
	// BuildLabel is the Windows build. kubelet sets it.
	BuildLabel = "node.kubernetes.io/windows-build"
)

// Node annotations.
const (
	// RevisionAnnotation is the revision that is completely applied on the host. The daemon writes it.
	RevisionAnnotation = Prefix + "version"
	// DesiredRevisionAnnotation selects the services manifest. The operator writes it.
	DesiredRevisionAnnotation = Prefix + "desired-version"
	// RebootRequiredAnnotation requests a reboot from the operator. Its value is empty.
	RebootRequiredAnnotation = Prefix + "reboot-required"
	// PublicKeyHashAnnotation is the hex SHA-256 of the authorized_keys line of the SSH public key,
	// without the newline.
	PublicKeyHashAnnotation = Prefix + "pub-key-hash"
	// HostKeyAnnotation and HostKeyTypeAnnotation show the pinned host key (base64 of its wire format) and its
	// algorithm. They are only for reading: the operator uses the pin in the WindowsInstance, which the node can't
	// edit.
	HostKeyAnnotation     = Prefix + "ssh-host-key"
	HostKeyTypeAnnotation = Prefix + "ssh-host-key-type"
	// InstanceAnnotation names the WindowsInstance that a Node belongs to, as namespace/name.
	InstanceAnnotation = Prefix + "instance"
	// CordonedAnnotation = "true" means that the operator cordoned the Node, so it may remove the cordon.
	CordonedAnnotation = Prefix + "cordoned"
	// ApplyStatusAnnotation is the daemon's report: why the desired revision is not applied yet, or a problem that
	// doesn't concern the revision (Reason.IsBesideRevision). Its form is "<Reason>: <detail>". If the detail is
	// about a revision other than the applied one, it begins with AboutRevision.
	ApplyStatusAnnotation = Prefix + "apply-status"
	// StageAnnotation is a revision whose payload the daemon fetches while its node is in service. The operator
	// writes it. When the whole payload is on the host, the daemon responds with StagedAnnotation = that revision
	// and StagedBytesAnnotation = the number of received bytes. While it can't fetch the payload, it writes
	// StageStatusAnnotation = "<Reason>: <detail>".
	StageAnnotation       = Prefix + "stage-version"
	StagedAnnotation      = Prefix + "staged-version"
	StagedBytesAnnotation = Prefix + "staged-bytes"
	StageStatusAnnotation = Prefix + "stage-status"
	// BootIDAnnotation is the boot of Windows that the daemon runs in. Another value proves a reboot.
	BootIDAnnotation = Prefix + "boot-id"
	// CertificateEndAnnotation is when the daemon's certificate ends, in RFC 3339. A daemon without a valid certificate
	// can't report that, so it writes the end in advance.
	CertificateEndAnnotation = Prefix + "certificate-end"
	// RebootRequestedAnnotation is a user's request for one reboot of the node. Its value is ignored. The operator
	// removes it when the reboot is verified.
	RebootRequestedAnnotation = Prefix + "reboot"
	// RebootPendingAnnotation means that Windows itself has a pending reboot. Its value names the signs, separated
	// by commas. The daemon writes it.
	RebootPendingAnnotation = Prefix + "reboot-pending"
	// RebootApprovedAnnotation is a boot id: if the daemon runs in this boot, it reboots its host now. The operator
	// writes it on a drained node.
	RebootApprovedAnnotation = Prefix + "reboot-approved"
	// ReleasedAnnotation makes the daemon remove everything that it installed from its host. Its value is the end of
	// that daemon's certificate, as in CertificateEndAnnotation. Only the operator may write it, on a Node without an
	// instance after a forced removal.
	ReleasedAnnotation = Prefix + "released"
	// HybridSubnetAnnotation and HybridMACAnnotation belong to hybrid-overlay.
	HybridSubnetAnnotation = "k8s.ovn.org/hybrid-overlay-node-subnet"
	HybridMACAnnotation    = "k8s.ovn.org/hybrid-overlay-distributed-router-gateway-mac"
)

// MachineAPIVersion is the API version of Machines, for code that refers to Machines without reading them.
const MachineAPIVersion = "machine.openshift.io/v1beta1"

// Annotations of Machines, of the sets that own them, and of our own objects.
const (
	// SSHPortAnnotation on a Machine is the port of its SSH server, if the port is not 22. Machines have no field
	// for it.
	SSHPortAnnotation = Prefix + "ssh-port"
	// MinAvailableAnnotation on a MachineSet is how many of its Windows nodes must stay available when the operator
	// replaces Machines, as a number or a percentage. Without it, the rollout budget decides.
	MinAvailableAnnotation = Prefix + "min-available"
	// ResumeRolloutAnnotation on the WindowsMachineConfig is a revision whose rollout continues although it was
	// halted.
	ResumeRolloutAnnotation = Prefix + "resume-rollout"
	// TryKeyAnnotation on a WindowsInstance requests a try of the private key on the host: each new value, an RFC
	// 3339 time, requests one.
	TryKeyAnnotation = Prefix + "try-key"
	// IgnoredAnnotation = "true" on a WindowsInstance means that it is paused because its Machine is ignored.
	IgnoredAnnotation = Prefix + "ignored"
	// BootstrapConfigAnnotation on a WindowsInstance is the UID of the WindowsConfig of Cluster API that created it.
	BootstrapConfigAnnotation = Prefix + "bootstrap-config"

	// ClusterAPITaint keeps pods away until Cluster API has copied the labels of the Machine to its Node.
	ClusterAPITaint = "node.cluster.x-k8s.io/uninitialized"
)

// The taint that every Windows node registers with.
const (
	TaintKey   = "os"
	TaintValue = "Windows"
)

// InstanceFinalizer keeps a WindowsInstance until its host is clean.
const InstanceFinalizer = Prefix + "host"

// AboutRevision begins the detail of a daemon's report about a revision that it has not applied: it tells the operator
// which revision the report is about.
func AboutRevision(revision string) string { return "revision " + revision + ": " }
