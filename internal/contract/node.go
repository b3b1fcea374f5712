package contract

// Prefix starts every label and annotation of the operator and the daemon.
const Prefix = "windowsmachineconfig.openshift.io/"

// Labels.
const (
	// BYOHLabel = "true" marks a node that came from the windows-instances ConfigMap.
	BYOHLabel = Prefix + "byoh"
	// UpgradingLabel marks a node that has a place in the rollout budget.
	UpgradingLabel = Prefix + "upgrading"
	// IgnoreLabel = "true" on a Machine keeps the operator away from it.
	IgnoreLabel = Prefix + "ignore"
	// WorkerLabel is the role label of worker nodes; its value is empty.
	WorkerLabel = "node-role.kubernetes.io/worker"
	// OSIDLabel = OSIDWindows is set by kubelet at registration and used to find Windows nodes.
	OSIDLabel   = "node.openshift.io/os_id"
	OSIDWindows = "Windows"
	// MachineOSLabel = OSIDWindows on a Machine selects it for the operator.
	MachineOSLabel = "machine.openshift.io/os-id"
	// BuildLabel is set by kubelet to the Windows build.
	BuildLabel = "node.kubernetes.io/windows-build"
)

// Node annotations.
const (
	// RevisionAnnotation is written by the daemon when the desired revision holds completely.
	RevisionAnnotation = Prefix + "version"
	// DesiredRevisionAnnotation is written by the operator and selects the services manifest.
	DesiredRevisionAnnotation = Prefix + "desired-version"
	// RebootRequiredAnnotation asks the operator for a reboot; its value is empty.
	RebootRequiredAnnotation = Prefix + "reboot-required"
	// PublicKeyHashAnnotation is the hex SHA-256 of the authorized_keys line of the SSH public key,
	// without the newline.
	PublicKeyHashAnnotation = Prefix + "pub-key-hash"
	// HostKeyAnnotation and HostKeyTypeAnnotation show the pinned host key (base64 of its wire
	// format) and its algorithm. They are for reading only: the pin that counts is in the
	// WindowsInstance, which the node can't edit.
	HostKeyAnnotation     = Prefix + "ssh-host-key"
	HostKeyTypeAnnotation = Prefix + "ssh-host-key-type"
	// InstanceAnnotation names the WindowsInstance that a Node belongs to, as namespace/name.
	InstanceAnnotation = Prefix + "instance"
	// CordonedAnnotation = "true" says that the cordon on the Node is the operator's, so it may
	// lift it.
	CordonedAnnotation = Prefix + "cordoned"
	// ApplyStatusAnnotation is where the daemon reports why the desired revision is not applied yet, or a problem that
	// doesn't concern the revision (Reason.IsBesideRevision): "<Reason>: <detail>". If the detail is about another
	// revision than the applied one, it begins with AboutRevision.
	ApplyStatusAnnotation = Prefix + "apply-status"
	// StageAnnotation is a revision whose payload the daemon fetches while its node serves; the operator writes it. The
	// daemon answers with StagedAnnotation = that revision once all of it is on the host, StagedBytesAnnotation = the
	// number of bytes that it received, and, while it can't, StageStatusAnnotation = "<Reason>: <detail>".
	StageAnnotation       = Prefix + "stage-version"
	StagedAnnotation      = Prefix + "staged-version"
	StagedBytesAnnotation = Prefix + "staged-bytes"
	StageStatusAnnotation = Prefix + "stage-status"
	// BootIDAnnotation is the boot of Windows that the daemon runs in; another value proves a
	// reboot.
	BootIDAnnotation = Prefix + "boot-id"
	// CertificateEndAnnotation is when the daemon's certificate ends, in RFC 3339. A daemon without a valid certificate
	// can't report that, so it writes the end in advance.
	CertificateEndAnnotation = Prefix + "certificate-end"
	// RebootRequestedAnnotation is a user's request for one reboot of the node, whatever its value;
	// the operator removes it when the reboot is verified.
	RebootRequestedAnnotation = Prefix + "reboot"
	// RebootPendingAnnotation says that Windows itself waits for a reboot; its value names the
	// signs, separated by commas. The daemon writes it.
	RebootPendingAnnotation = Prefix + "reboot-pending"
	// RebootApprovedAnnotation is a boot id: a daemon whose boot it is reboots its host now. The
	// operator writes it on a node that is drained.
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
	// SSHPortAnnotation on a Machine is the port of its SSH server, when that is not 22: Machines
	// have no field for it.
	SSHPortAnnotation = Prefix + "ssh-port"
	// MinAvailableAnnotation on a MachineSet is how many of its Windows nodes must stay available when the operator
	// replaces Machines, as a number or a percentage. Without it, the rollout budget decides.
	MinAvailableAnnotation = Prefix + "min-available"
	// ResumeRolloutAnnotation on the WindowsMachineConfig is a revision whose rollout goes on
	// although it was halted.
	ResumeRolloutAnnotation = Prefix + "resume-rollout"
	// TryKeyAnnotation on a WindowsInstance is an RFC 3339 time: the host is asked whether it accepts
	// the private key if it was not asked since.
	TryKeyAnnotation = Prefix + "try-key"
	// IgnoredAnnotation = "true" on a WindowsInstance says that it is paused because its Machine is
	// ignored.
	IgnoredAnnotation = Prefix + "ignored"
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
