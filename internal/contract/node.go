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
	// MachineOSLabel = OSIDWindows on a Machine selects the Machine for the operator.
	MachineOSLabel = "machine.openshift.io/os-id"
	// BuildLabel is the Windows build. kubelet sets it.
	BuildLabel = "node.kubernetes.io/windows-build"
)

// Node annotations.
const (
	// RevisionAnnotation is the revision that is completely applied on the host. The daemon writes the annotation.
	RevisionAnnotation = Prefix + "version"
	// DesiredRevisionAnnotation is the revision that the Node should have. The operator writes the annotation.
	DesiredRevisionAnnotation = Prefix + "desired-version"
	// RebootRequiredAnnotation requests a reboot from the operator. Its value is empty.
	RebootRequiredAnnotation = Prefix + "reboot-required"
	// PublicKeyHashAnnotation is the hex SHA-256 of the authorized_keys line of the SSH public key, without newline.
	PublicKeyHashAnnotation = Prefix + "pub-key-hash"
	// HostKeyAnnotation and HostKeyTypeAnnotation show the pinned host key (base64 of its wire format) and its
	// algorithm. The operator itself uses the pin in the WindowsInstance, which the node can't edit.
	HostKeyAnnotation     = Prefix + "ssh-host-key"
	HostKeyTypeAnnotation = Prefix + "ssh-host-key-type"
	// InstanceAnnotation names the WindowsInstance that a Node belongs to, as namespace/name.
	InstanceAnnotation = Prefix + "instance"
	// CordonedAnnotation = "true" means that the operator cordoned the Node, so it may remove the cordon.
	CordonedAnnotation = Prefix + "cordoned"
	// ApplyStatusAnnotation is the daemon's report. It says why the desired revision is not applied yet, or contains a
	// problem that doesn't concern the revision (Reason.IsBesideRevision). The form of the report is "<Reason>:
	// <detail>". If the detail is about a revision other than the applied one, the detail begins with AboutRevision.
	ApplyStatusAnnotation = Prefix + "apply-status"
	// StageAnnotation is a revision whose payload the daemon should fetch in advance, while the node is in service. The
	// operator writes it. When the whole payload is on the host, the daemon writes the revision to StagedAnnotation and
	// the number of received bytes to StagedBytesAnnotation. While the daemon can't fetch the payload, it writes
	// "<Reason>: <detail>" to StageStatusAnnotation.
	StageAnnotation       = Prefix + "stage-version"
	StagedAnnotation      = Prefix + "staged-version"
	StagedBytesAnnotation = Prefix + "staged-bytes"
	StageStatusAnnotation = Prefix + "stage-status"
	// BootIDAnnotation identifies the current boot of Windows. It changes with each reboot.
	BootIDAnnotation = Prefix + "boot-id"
	// CertificateEndAnnotation is the time when the daemon's certificate expires, in RFC 3339. After that time, the
	// daemon can't report the expiry, so it writes the annotation in advance.
	CertificateEndAnnotation = Prefix + "certificate-end"
	// RebootRequestedAnnotation is a user's request for one reboot of the node. Its value is ignored. When the operator
	// has verified the reboot, it removes the annotation.
	RebootRequestedAnnotation = Prefix + "reboot"
	// RebootPendingAnnotation means that Windows itself needs a reboot. Its value lists the signs of this, separated by
	// commas. The daemon writes the annotation.
	RebootPendingAnnotation = Prefix + "reboot-pending"
	// RebootApprovedAnnotation is a boot ID. If this is the ID of the current boot, the daemon reboots its host now.
	// The operator writes the annotation on a drained node.
	RebootApprovedAnnotation = Prefix + "reboot-approved"
	// ReleasedAnnotation makes the daemon remove everything that it installed on its host. Its value is the time when
	// the daemon's certificate expires, as in CertificateEndAnnotation. Only the operator may write the annotation,
	// after a forced removal, on a Node without an instance.
	ReleasedAnnotation = Prefix + "released"
	// HybridSubnetAnnotation and HybridMACAnnotation belong to hybrid-overlay.
	HybridSubnetAnnotation = "k8s.ovn.org/hybrid-overlay-node-subnet"
	HybridMACAnnotation    = "k8s.ovn.org/hybrid-overlay-distributed-router-gateway-mac"
)

// MachineAPIVersion is the API version of Machines, for code that refers to Machines without reading them.
const MachineAPIVersion = "machine.openshift.io/v1beta1"

// Annotations of Machines, of the sets that own them, and of the operator's own objects.
const (
	// SSHPortAnnotation on a Machine is the port of its SSH server, if not 22. Machines have no field for the port.
	SSHPortAnnotation = Prefix + "ssh-port"
	// MinAvailableAnnotation on a MachineSet is the number or percentage of its Windows nodes that must stay available
	// when the operator replaces Machines. If the annotation is missing, the rollout budget decides.
	MinAvailableAnnotation = Prefix + "min-available"
	// ResumeRolloutAnnotation on the WindowsMachineConfig is a revision whose rollout continues although it was halted.
	ResumeRolloutAnnotation = Prefix + "resume-rollout"
	// TryKeyAnnotation on a WindowsInstance makes the operator try the private key on the host. Its value is a time in
	// RFC 3339. Each new value requests another try.
	TryKeyAnnotation = Prefix + "try-key"
	// IgnoredAnnotation = "true" on a WindowsInstance means that the instance is paused because its Machine is ignored.
	IgnoredAnnotation = Prefix + "ignored"
	// BootstrapConfigAnnotation on a WindowsInstance is the UID of its WindowsConfig in the management cluster.
	BootstrapConfigAnnotation = Prefix + "bootstrap-config"

	// ClusterAPITaint keeps pods away until Cluster API has copied the labels of the Machine to its Node.
	ClusterAPITaint = "node.cluster.x-k8s.io/uninitialized"
)

// The taint that every Windows node has when it registers.
const (
	TaintKey   = "os"
	TaintValue = "Windows"
)

// InstanceFinalizer keeps a WindowsInstance until its host is clean.
const InstanceFinalizer = Prefix + "host"

// AboutRevision returns the beginning of the detail in a daemon's report about a revision that isn't applied.
func AboutRevision(revision string) string { return "revision " + revision + ": " }
