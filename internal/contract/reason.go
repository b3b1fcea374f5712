package contract

import (
	"errors"
	"fmt"
	"strings"
)

// Reason is a CamelCase word that says why something waits or fails. Conditions, events, metrics and logs use the same
// word. Each reason has a stable number, which users can look up in the docs, and a fix, which tells an administrator
// what to do.
type Reason string

// Problem is a reason with the details of one case. The operator and the daemon use it as an error.
type Problem struct {
	Reason Reason `json:"reason"`
	// Detail says which object failed and why, without secrets.
	Detail string `json:"detail"`
}

// NewProblem returns a Problem with a formatted detail.
func NewProblem(reason Reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Error returns the detail, followed by number and reason.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s (%s %s)", p.Detail, p.Reason.Code(), p.Reason)
}

// Explain returns the problem and its fix, as conditions and events show them.
func (p *Problem) Explain() string { return p.Error() + ". " + p.Reason.Fix() }

// Explained splits a message that Explain returned for a problem with this reason into the detail and the fix. If the
// message has more text after the fix, the returned fix includes that text.
func (r Reason) Explained(message string) (detail, fix string) {
	separator := NewProblem(r, "").Error() + ". "
	if i := strings.LastIndex(message, separator); i >= 0 {
		return message[:i], message[i+len(separator):]
	}
	return message, ""
}

// AsProblem returns the Problem in an error's chain. It returns false if there is none.
func AsProblem(err error) (*Problem, bool) {
	p := new(Problem)
	if errors.As(err, &p) {
		return p, true
	}
	return nil, false
}

// ProblemOf returns the Problem in an error's chain, or else a new Problem with the reason and the error's text.
func ProblemOf(reason Reason, err error) *Problem {
	if p, ok := AsProblem(err); ok {
		return p
	}
	return NewProblem(reason, "%v", err)
}

// Same reports whether two problems are equal.
func Same(a, b *Problem) bool { return *a == *b }

// JoinProblems joins problems in one error. It returns nil if the list is empty.
func JoinProblems(problems []*Problem) error {
	all := make([]error, len(problems))
	for i, p := range problems {
		all[i] = p
	}
	return errors.Join(all...)
}

// Subject is what a reason is about.
type Subject string

// Subjects that have their own condition.
const (
	AboutReach Subject = "reaching the host"
	AboutHost  Subject = "the host itself"
)

// Number returns the number of the reason, or 0 if the reason is unknown.
func (r Reason) Number() int { return explanations[r].number }

// Code returns the number in the form that users see, such as W203.
func (r Reason) Code() string { return fmt.Sprintf("W%d", r.Number()) }

// Known reports whether this release has the reason.
func (r Reason) Known() bool { return r.Number() != 0 }

// Fix returns the text that tells an administrator what to do.
func (r Reason) Fix() string { return explanations[r].fix }

// IsBesideRevision reports whether a problem with this reason isn't about the revision, which may be applied or not.
func (r Reason) IsBesideRevision() bool {
	return r == ReasonTokenExpiring || r == ReasonRebootFailed || r == ReasonStateLost
}

// About returns the subject that a failure with this reason concerns. The failure sets the host's condition for this
// subject to False. If the subject is empty, the failure sets no such condition.
func (r Reason) About() Subject {
	switch r.Number() / 100 {
	case 1, 2:
		return AboutReach
	case 3:
		return AboutHost
	}
	return ""
}

// Reasons, grouped by number: 1xx the entry, 2xx reaching the host, 3xx the host itself, 4xx preparing and rebooting,
// 5xx the payload, 6xx services, files and certificates, 7xx the Node, 8xx leaving and waiting, 9xx the cluster. The
// comment of each reason says when the reason occurs, and docs/reference/reasons.md shows the comment.
const (
	// An entry of windows-instances is not valid.
	ReasonEntryMalformed Reason = "EntryMalformed"
	// A DNS name in windows-instances does not resolve to an IPv4 address.
	ReasonAddressUnresolvable Reason = "AddressUnresolvable"
	// Two entries or Machines have the same address.
	ReasonAddressDuplicate Reason = "AddressDuplicate"
	// Another instance already has this host, a host with the same name, or a copy of its disk. During the removal of a
	// host: another machine with the same SSH host key answers at the host's address.
	ReasonHostDuplicate Reason = "HostDuplicate"
	// A WindowsInstance with the Machine's name exists, but was not created from this Machine.
	ReasonMachineNameTaken Reason = "MachineNameTaken"
	// The Machine's name can't be a host name. On this platform, the host gets the name of its Machine.
	ReasonMachineNameInvalid Reason = "MachineNameInvalid"
	// The Machine has addresses, but no internal IPv4 address and no name that resolves to one.
	ReasonMachineAddressUnusable Reason = "MachineAddressUnusable"
	// An annotation of the Machine is not valid.
	ReasonMachineAnnotationInvalid Reason = "MachineAnnotationInvalid"
	// The ConfigMap windows-instances is absent, and instances were created from it. If it stays absent for a minute,
	// the operator removes these instances.
	ReasonConfigMapMissing Reason = "ConfigMapMissing"
	// The API server refuses to create the WindowsInstance of a Machine or of an entry of windows-instances.
	ReasonInstanceRefused Reason = "InstanceRefused"
	// An entry of windows-instances has a setting that does not exist.
	ReasonEntrySettingUnknown Reason = "EntrySettingUnknown"
	// An entry of windows-instances is not UTF-8. The operator doesn't change the host of this entry.
	ReasonEntryNotUTF8 Reason = "EntryNotUTF8"
	// An entry of windows-instances has no valid user name.
	ReasonEntryUserInvalid Reason = "EntryUserInvalid"
	// An entry of windows-instances has no valid port.
	ReasonEntryPortInvalid Reason = "EntryPortInvalid"
	// An entry of windows-instances has no valid SSH host key.
	ReasonEntryHostKeyInvalid Reason = "EntryHostKeyInvalid"

	// Nothing answers at the host's SSH port.
	ReasonUnreachable Reason = "Unreachable"
	// The host refuses the private key for this user.
	ReasonKeyRefused Reason = "KeyRefused"
	// The host's SSH host key differs from the configured or pinned key.
	ReasonHostKeyMismatch Reason = "HostKeyMismatch"
	// The connection broke during work on the host, or the operator closed the connection because the host receives
	// a transfer too slowly.
	ReasonConnectionLost Reason = "ConnectionLost"
	// Something other than an SSH server answers, or the server does not answer in time.
	ReasonNotSSH Reason = "NotSSH"
	// The host's SSH server accepts the key but offers no file transfer.
	ReasonNoSFTP Reason = "NoSFTP"
	// The host announces more SSH host keys but does not prove that it has them.
	ReasonHostKeyUnproven Reason = "HostKeyUnproven"
	// The host has joined with an earlier private key, and refuses the current key.
	ReasonKeyNotAuthorized Reason = "KeyNotAuthorized"
	// The host sent more data than any answer of the daemon contains, so the operator closed the connection.
	ReasonOutputTooLarge Reason = "OutputTooLarge"
	// The host's SSH server transfers files but opens no session for a command.
	ReasonNoSession Reason = "NoSession"
	// The host joins by itself, and nobody has run the command there yet. A Machine runs the command at its first boot.
	ReasonHostAwaited Reason = "HostAwaited"
	// The host joins by itself, and the token in its command expired before the command was run.
	ReasonJoinTokenExpired Reason = "JoinTokenExpired"
	// The host joins by itself, and does not read the operator's calls.
	ReasonHostSilent Reason = "HostSilent"

	// The Windows build is not supported.
	ReasonBuildUnsupported Reason = "BuildUnsupported"
	// The system drive has too little space for the payload and images.
	ReasonDiskFull Reason = "DiskFull"
	// The host's clock is so wrong that certificates would not be valid.
	ReasonClockSkewed Reason = "ClockSkewed"
	// The host name can't be the name of a Node.
	ReasonHostnameInvalid Reason = "HostnameInvalid"
	// Another program listens on a port that a node needs.
	ReasonPortInUse Reason = "PortInUse"
	// The host has a container runtime or a kubelet that the operator did not install. Or a directory that the operator
	// needs holds another operator's files, or files that users other than Administrators can write.
	ReasonConflictingSoftware Reason = "ConflictingSoftware"
	// The user can log in but is not an administrator.
	ReasonNotAdministrator Reason = "NotAdministrator"
	// The host has no IPv4 default route, so its node address can't be determined.
	ReasonNoDefaultRoute Reason = "NoDefaultRoute"
	// The cloud's metadata service does not return the machine's name.
	ReasonMetadataUnavailable Reason = "MetadataUnavailable"
	// The host does not have the address in spec.nodeIP.
	ReasonNodeIPMissing Reason = "NodeIPMissing"
	// The hybrid network has a custom VXLAN port, which Windows Server 2019 does not support.
	ReasonVXLANPortUnsupported Reason = "VXLANPortUnsupported"
	// The host has a static address. Windows may lose it when the container network is created.
	ReasonStaticAddress Reason = "StaticAddress"
	// The host has several network cards with a default gateway, so it is unknown which card is for the cluster.
	ReasonSeveralGateways Reason = "SeveralGateways"
	// The host can't reach the API server at the address that nodes use, or another server answers there.
	ReasonAPIServerUnreachable Reason = "APIServerUnreachable"
	// The host's address is in a network of the cluster's pods or Services, so pods and Linux nodes can't reach the
	// host. Or the API server or ingress has the same address.
	ReasonHostInClusterNetwork Reason = "HostInClusterNetwork"
	// VMware Tools on the host have their default setting: they don't report the addresses of interfaces named
	// vEthernet. When the container network is created, the host's address moves to such an interface. Then vCenter
	// shows no address, and the Machine and the Node lose their addresses.
	ReasonAddressHidden Reason = "AddressHidden"

	// The operator is setting the host name or Windows features.
	ReasonPreparing Reason = "Preparing"
	// The host is rebooting.
	ReasonRebooting Reason = "Rebooting"
	// The host did not come back from a reboot in time.
	ReasonRebootTimedOut Reason = "RebootTimedOut"
	// The Windows feature Containers could not be enabled.
	ReasonFeatureMissing Reason = "FeatureMissing"
	// A command of the daemon's program on the host returned no response.
	ReasonDaemonCallFailed Reason = "DaemonCallFailed"
	// The host was rebooted three times in a row, and a reboot is still requested.
	ReasonRebootIneffective Reason = "RebootIneffective"
	// An earlier command of the daemon's program has been running on the host for more than a minute.
	ReasonHostBusy Reason = "HostBusy"
	// Windows does not reboot the host when the daemon requests it.
	ReasonRebootFailed Reason = "RebootFailed"

	// Data that arrived on the host does not match its checksum.
	ReasonPayloadCorrupt Reason = "PayloadCorrupt"
	// The transfer of the payload ended early, or its files could not be stored on the host or were removed.
	ReasonPayloadIncomplete Reason = "PayloadIncomplete"

	// A managed Windows service does not start or does not stay up.
	ReasonServiceFailed Reason = "ServiceFailed"
	// A managed file can't be written.
	ReasonFileFailed Reason = "FileFailed"
	// The services manifest, which has the desired state of a node, can't be used.
	ReasonManifestInvalid Reason = "ManifestInvalid"
	// The services manifest of the desired revision, or its Secret, does not exist or has not been read yet.
	ReasonManifestMissing Reason = "ManifestMissing"
	// A certificate request waits for its approval or signature.
	ReasonCertificatePending Reason = "CertificatePending"
	// A certificate request was denied, or breaks a rule and stays pending.
	ReasonCertificateDenied Reason = "CertificateDenied"
	// The pod network does not exist on the host yet, or the host network service does not respond.
	ReasonNetworkPending Reason = "NetworkPending"
	// A system environment variable can't be set.
	ReasonEnvironmentFailed Reason = "EnvironmentFailed"
	// Another program on the host keeps changing what the daemon manages.
	ReasonForeignInterference Reason = "ForeignInterference"
	// A CA certificate can't be added to the host's root store, or can't be removed from it.
	ReasonTrustFailed Reason = "TrustFailed"
	// The route to the cloud's metadata service can't be set.
	ReasonRouteFailed Reason = "RouteFailed"
	// The daemon has no token for Azure's node manager or flanneld yet.
	ReasonTokenPending Reason = "TokenPending"
	// The HNS network that pods used before can't be removed.
	ReasonNetworkNotRemoved Reason = "NetworkNotRemoved"
	// The token of Azure's node manager or flanneld can't be renewed, and expires soon or has expired.
	ReasonTokenExpiring Reason = "TokenExpiring"
	// The daemon's state file was deleted, or is damaged. The daemon changes nothing until the host has joined again.
	ReasonStateLost Reason = "StateLost"

	// kubelet has not registered its Node yet.
	ReasonNodePending Reason = "NodePending"
	// The Node is not Ready.
	ReasonNodeNotReady Reason = "NodeNotReady"
	// A Node of this name exists and belongs to another host, or only the host itself reports that it owns the Node.
	ReasonNodeForeign Reason = "NodeForeign"
	// The daemon has not applied the desired revision yet.
	ReasonRevisionPending Reason = "RevisionPending"
	// The Node is Ready at the desired revision.
	ReasonNodeReady Reason = "NodeReady"
	// The node did not become Ready at the new revision in time, or its daemon could not apply the revision, so the
	// node rolls back to the previous revision.
	ReasonUpdateFailed Reason = "UpdateFailed"
	// The number of nodes that failed at the desired revision has reached spec.rollout.failureThreshold, so no other
	// node is upgraded to this revision.
	ReasonRolloutHalted Reason = "RolloutHalted"
	// The daemon fetches the payload of the desired revision while the node stays in service.
	ReasonStaging Reason = "Staging"
	// No window of spec.rollout.maintenanceWindows is open.
	ReasonMaintenanceWindowClosed Reason = "MaintenanceWindowClosed"
	// The node's release is more than two minor versions older than the operator, or more than one minor version newer.
	ReasonSkewUnsupported Reason = "SkewUnsupported"
	// The node has its new revision, or is back from its reboot, and must stay Ready for the settling time.
	ReasonSettling Reason = "Settling"
	// A user uncordoned the node while the operator was draining it, so the node stays in service.
	ReasonUncordoned Reason = "Uncordoned"
	// kubelet is healthy, but the daemon's certificate has expired, or the daemon has not responded to a request for
	// the time in the operator's flag --daemon-timeout (5m by default).
	ReasonDaemonUnresponsive Reason = "DaemonUnresponsive"
	// The node did not return to its previous revision within spec.rollout.verifyTimeout. It is out of service and
	// keeps its slot in the rollout budget.
	ReasonRollbackTimedOut Reason = "RollbackTimedOut"
	// The node belongs to the operator but has no WindowsInstance: its host was removed without being cleaned and
	// came back, or the host registered the node while its Machine was deleted. The operator cordons the node.
	ReasonNodeOrphaned Reason = "NodeOrphaned"
	// The list of slots in the rollout budget can't be written, so no node is disrupted: the ConfigMap
	// windows-rollout-places is immutable or too large, or a policy of the cluster denies the write.
	ReasonSlotsUnwritable Reason = "SlotsUnwritable"
	// The API server refuses the labels or taints of the Node, because a policy denies them or they are not valid.
	ReasonLabelsRefused Reason = "LabelsRefused"

	// Pods are being evicted from the node.
	ReasonDraining Reason = "Draining"
	// Pods could not be evicted from the node in time.
	ReasonDrainBlocked Reason = "DrainBlocked"
	// The host was cleaned, but some objects could not be removed.
	ReasonCleanupFailed Reason = "CleanupFailed"
	// The Machine of this host is being deleted together with the host.
	ReasonMachineLeaving Reason = "MachineLeaving"
	// The removal of the host waits for a slot in the rollout budget. Until then, its node stays in service.
	ReasonRemovalPending Reason = "RemovalPending"
	// The number of joining hosts has reached maxConcurrentJoins.
	ReasonWaitingForSlot Reason = "WaitingForSlot"
	// spec.paused of the WindowsInstance is true.
	ReasonPaused Reason = "Paused"
	// Work is in progress.
	ReasonInProgress Reason = "InProgress"
	// The host was checked and can join. It does not join, because spec.preflightOnly of the instance is true.
	ReasonPreflightOnly Reason = "PreflightOnly"
	// The host was not checked, because another WindowsInstance already has it.
	ReasonHostListed Reason = "HostListed"
	// The Machine's host refuses the current private key, so the operator deletes the Machine and its MachineSet
	// creates another one.
	ReasonMachineReplaced Reason = "MachineReplaced"
	// The number of Windows nodes that are unavailable or missing, for any cause, has reached
	// spec.rollout.maxUnavailable.
	ReasonBudgetExhausted Reason = "BudgetExhausted"
	// If this Machine were deleted, too few nodes of its MachineSet would be in service.
	ReasonOwnerDegraded Reason = "OwnerDegraded"
	// The Machine belongs to no MachineSet, so no other Machine would replace it.
	ReasonMachineUnowned Reason = "MachineUnowned"
	// The Machine has the label windowsmachineconfig.openshift.io/ignore.
	ReasonMachineIgnored Reason = "MachineIgnored"
	// Another API manages the Machine, which is a copy of that API's Machine.
	ReasonMachineManagedElsewhere Reason = "MachineManagedElsewhere"
	// Machines were replaced, and none of the new Machines has accepted the private key yet.
	ReasonReplacementIneffective Reason = "ReplacementIneffective"
	// The user data of new Machines does not contain the current key yet, or is in a Secret other than
	// windows-user-data.
	ReasonUserDataStale Reason = "UserDataStale"
	// An error occurred that has no other reason.
	ReasonInternal Reason = "InternalError"

	// The secret cloud-private-key does not exist, or it lacks private-key.pem.
	ReasonPrivateKeyMissing Reason = "PrivateKeyMissing"
	// The private key can't be used.
	ReasonPrivateKeyInvalid Reason = "PrivateKeyInvalid"
	// The cluster's network does not support Windows nodes.
	ReasonNetworkUnsupported Reason = "NetworkUnsupported"
	// A fact that nodes need could not be read from the cluster.
	ReasonClusterFactsIncomplete Reason = "ClusterFactsIncomplete"
	// The operator's payload lacks a file that every node needs.
	ReasonPayloadMissing Reason = "PayloadMissing"
	// No kubelet in the operator's payload fits the Kubernetes version of this cluster.
	ReasonVersionUnsupported Reason = "VersionUnsupported"
	// A call to the API server failed.
	ReasonAPICallFailed Reason = "APICallFailed"
	// A mirror rule is not valid.
	ReasonMirrorRejected Reason = "MirrorRejected"
	// The cluster's pull secret or one of its entries is not valid. Or the secret that spec.pullSecret names never
	// existed.
	ReasonPullSecretInvalid Reason = "PullSecretInvalid"
	// A certificate in a CA bundle is not valid or is not a CA certificate.
	ReasonCertificateRejected Reason = "CertificateRejected"
	// A CA bundle that a setting names does not exist or is empty.
	ReasonTrustSourceMissing Reason = "TrustSourceMissing"
	// The cluster's proxy setting is not valid.
	ReasonProxyInvalid Reason = "ProxyInvalid"
	// spec.kubelet.config of the WindowsMachineConfig is not valid, or sets a field that the operator must set.
	ReasonKubeletConfigRefused Reason = "KubeletConfigRefused"
	// A setting of the WindowsMachineConfig is not valid.
	ReasonSettingInvalid Reason = "SettingInvalid"
	// The data for nodes does not fit into a Secret.
	ReasonDesiredStateTooLarge Reason = "DesiredStateTooLarge"
	// The secret windows-user-data belongs to another owner, so the operator does not change it.
	ReasonUserDataForeign Reason = "UserDataForeign"
	// The operator may not write the secret windows-user-data.
	ReasonUserDataForbidden Reason = "UserDataForbidden"
	// The secret windows-ssh-host-key does not contain a valid host key.
	ReasonHostKeySecretInvalid Reason = "HostKeySecretInvalid"
	// A field of spec.rollout of the WindowsMachineConfig is not valid.
	ReasonRolloutSettingInvalid Reason = "RolloutSettingInvalid"
	// vSphere's own overlay may use the default VXLAN port 4789. Then pods on different nodes can't reach each other.
	ReasonVXLANPortDefault Reason = "VXLANPortDefault"
	// A field of the WindowsMachineConfig sets a value that an object of OpenShift sets on this cluster.
	ReasonSettingNotHere Reason = "SettingNotHere"
	// The ServiceAccount that hosts use to join may not request certificates.
	ReasonBootstrapNotGranted Reason = "BootstrapNotGranted"
	// kube-proxy on Windows nodes, which has kubelet's identity, may not read the endpoints of Services. Pods on these
	// nodes can't reach Services.
	ReasonServicesNotGranted Reason = "ServicesNotGranted"
	// flannel is not installed, or its configuration does not support Windows nodes.
	ReasonFlannelUnsupported Reason = "FlannelUnsupported"
	// A pod for Linux was placed on a Windows node: its owner names the node, or tolerates the taint of Windows nodes
	// without selecting Linux.
	ReasonLinuxPodPlaced Reason = "LinuxPodPlaced"
	// The image of a pod for Windows has no variant for its node's build of Windows Server.
	ReasonImageNotForNode Reason = "ImageNotForNode"
	// A pod for Windows has been pending for ten minutes or more. No Windows node could run it, even without other
	// pods.
	ReasonPodUnplaceable Reason = "PodUnplaceable"
	// The pods on a Windows node, or the pending pods, could not be read completely: the API server does not respond,
	// or reading takes too long, because there are too many pods or the pods are too large.
	ReasonPodsNotRead Reason = "PodsNotRead"
	// The Windows nodes of this cluster belong to an operator in another namespace. This operator does nothing, and
	// exits.
	ReasonAnotherOperator Reason = "AnotherOperator"
	// Only pods and nodes can reach the address of the API server for hosts: it is in the network of Services or
	// pods, or is the name of a Service.
	ReasonAPIServerInternal Reason = "APIServerInternal"
	// The networks of pods and of Services overlap.
	ReasonNetworksOverlap Reason = "NetworksOverlap"
	// For a minute or longer, an object that nodes need could not be read or published: the API server refuses the
	// request or does not respond, or a finalizer holds an object.
	ReasonRevisionNotPublished Reason = "RevisionNotPublished"
	// The WindowsMachineConfig was deleted. Its last spec stays in force, and the operator restores the object with
	// this spec after a minute.
	ReasonSettingsMissing Reason = "SettingsMissing"
)

type explanation struct {
	number int
	fix    string
}

var explanations = map[Reason]explanation{ //nolint:gochecknoglobals // a table that never changes
	ReasonEntryMalformed: {101, "Write the entry as <IPv4 address or DNS name>: username=<name>. The other entries " +
		"are not affected."},
	ReasonAddressUnresolvable: {102, "Correct the name, or add its A record to the DNS server that the operator's " +
		"pod uses."},
	ReasonAddressDuplicate: {103, "Remove the duplicate entry, Machine or WindowsInstance. Until then, the older " +
		"WindowsInstance keeps the address. If a removal does not end, read the message of the WindowsInstance that " +
		"is being removed. If its host no longer exists, set spec.removalPolicy of that WindowsInstance to Force."},
	ReasonHostDuplicate: {104, "Remove or rename one host. Give a cloned host a new identity with sysprep, and new " +
		"SSH host keys. If the host is being removed, correct DNS, DHCP or forwarded ports, so that its address " +
		"leads to the host again. The machine that answered was not cleaned."},
	ReasonMachineNameTaken: {105, "Delete the WindowsInstance with this name. If an entry of windows-instances " +
		"created it, remove the entry."},
	ReasonMachineNameInvalid: {106, "Give its MachineSet a name of at most nine characters. A Machine's name is that " +
		"name and six more characters, and may have at most 15 characters: lower-case letters, digits and hyphens, " +
		"not digits only."},
	ReasonMachineAddressUnusable: {107, "Give the Machine an IPv4 address in the cluster's network, or add an A " +
		"record of its name to the DNS server that the operator's pod uses."},
	ReasonMachineAnnotationInvalid: {108, "Correct the named annotation."},
	ReasonConfigMapMissing: {109, "To keep its hosts, create the ConfigMap again. To remove all its hosts, leave the " +
		"ConfigMap absent. To remove them at once, create the ConfigMap without entries."},
	ReasonInstanceRefused: {110, "Change the quota or policy that the message names, or apply the operator's " +
		"manifests again to restore its rights. The operator tries again every 30 seconds."},
	ReasonEntrySettingUnknown: {111, "Use only username=<name>, port=<number> and hostKey=<type> <base64>, each on a " +
		"separate line."},
	ReasonEntryNotUTF8: {112, "Create the entry again from a file in UTF-8. Windows PowerShell writes UTF-16 with >: " +
		"use Set-Content -Encoding utf8 there."},
	ReasonEntryUserInvalid: {113, "Write username=<name>, and each further setting on a separate line."},
	ReasonEntryPortInvalid: {114, "Write port=<number> with the port of the host's SSH server. If the port is 22, " +
		"you can omit it."},
	ReasonEntryHostKeyInvalid: {115, "Write hostKey=<type> <base64>, as a line of ssh-keyscan shows it."},
	ReasonUnreachable: {201, "Check that the host is up, that sshd runs, and that TCP port 22 is open from the " +
		"control plane."},
	ReasonKeyRefused: {202, "Add the public key to C:\\ProgramData\\ssh\\administrators_authorized_keys on the host. " +
		"Only Administrators and SYSTEM may have access to this file. Check the user name."},
	ReasonHostKeyMismatch: {203, "If the host was reinstalled, set the new key. If its entry in windows-instances " +
		"has hostKey, set hostKey there. Otherwise set spec.hostKey of the WindowsInstance. Or remove the entry, and " +
		"add the entry again when the WindowsInstance is gone. If the host was not reinstalled, find out which " +
		"machine answers."},
	ReasonConnectionLost: {204, "Nothing to do: the operator tries again, and continues a transfer where it broke. " +
		"If this repeats, check what ends connections between the control plane and the host: a firewall, a proxy, a " +
		"VPN, or packets that are too large for a link (MTU). If the host is too slow, find out what slows its " +
		"network or disk: 64 KiB per second are enough."},
	ReasonNotSSH: {205, "Check the address and port, and whether sshd on the host is overloaded."},
	ReasonNoSFTP: {206, "Put the line \"Subsystem sftp sftp-server.exe\" into C:\\ProgramData\\ssh\\sshd_config and " +
		"restart sshd."},
	ReasonHostKeyUnproven: {207, "A host with OpenSSH proves its keys, so find out what answers at this address. " +
		"Then delete the Machine, or set spec.hostKey of the WindowsInstance."},
	ReasonKeyNotAuthorized: {208, "Add the public key to C:\\ProgramData\\ssh\\administrators_authorized_keys on the " +
		"host. Until then the node keeps working, and only tasks that need SSH wait. The operator replaces a Machine " +
		"automatically when the rollout budget and its MachineSet allow it."},
	ReasonOutputTooLarge: {209, "Find out what answers at this address, and whether an attacker controls the " +
		"host."},
	ReasonNoSession: {210, "Set MaxSessions in C:\\ProgramData\\ssh\\sshd_config to 2 or more (OpenSSH's default is " +
		"10), and restart sshd."},
	ReasonHostAwaited: {211, "Run the command on the host, in Windows PowerShell as an administrator. \"kubectl " +
		"windows add --by-itself\" with the name of the WindowsInstance prints the command. If the host belongs to a " +
		"Machine and has booted, read C:\\Windows\\Logs\\windows-user-data.log on the host. If the Machine is older " +
		"than two hours, delete the Machine."},
	ReasonJoinTokenExpired: {212, "Run \"kubectl windows add --by-itself\" with the name of the WindowsInstance " +
		"again: it prints a command with a new token."},
	ReasonHostSilent: {213, "Check that the host is up and reaches the API server, and that its service " +
		"windows-instance-attend runs. If the host was reinstalled, or was off for four days and still does not " +
		"answer, run \"kubectl windows remove --force\" and \"kubectl windows add --by-itself\" with the name of the " +
		"WindowsInstance. Then run the new command on the host. If the host belongs to a Machine, delete the Machine."},
	ReasonBuildUnsupported: {301, "Use Windows Server 2019 (17763), 2022 (20348.681 or later) or 2025 (26100). " +
		"Install Windows updates if the message names one."},
	ReasonDiskFull:    {302, "Free space on drive C: or enlarge it."},
	ReasonClockSkewed: {303, "Set the host's time service (w32time) to the cluster's time source."},
	ReasonHostnameInvalid: {304, "Rename the host: lower-case letters, digits and hyphens, at most 63 characters, no " +
		"hyphen at either end. Windows ignores a new name that differs only in case, so choose a different one. Or " +
		"set spec.hostname of its WindowsInstance: the operator renames the host, unless it is a member of a domain. " +
		"On vSphere, the primary DNS suffix must also be in lower case."},
	ReasonPortInUse: {305, "Stop the named program, or configure another port in it."},
	ReasonConflictingSoftware: {306, "If another operator manages the host, remove the host from that operator " +
		"first. Otherwise uninstall the software, or remove the files that the message names. The operator does not " +
		"replace software that it did not install."},
	ReasonNotAdministrator: {307, "Use a member of the local Administrators group, or add the user to the group."},
	ReasonNoDefaultRoute:   {308, "Configure a default gateway."},
	ReasonMetadataUnavailable: {309, "Check that the machine can reach 169.254.169.254, and that its metadata " +
		"service is not disabled."},
	ReasonNodeIPMissing: {310, "Correct spec.nodeIP of the WindowsInstance, or give the host this address."},
	ReasonVXLANPortUnsupported: {311, "Use Windows Server 2022 or 2025 for this host. The port is " +
		"hybridOverlayVXLANPort in the Network object of the network operator."},
	ReasonStaticAddress: {312, "On the host, run as an administrator: reg add " +
		"HKLM\\SYSTEM\\CurrentControlSet\\Services\\hns\\State /v DeviceLessNicDisabled /t REG_DWORD /d 1 /f. Then " +
		"reboot the host. Or let the host get its address by DHCP."},
	ReasonSeveralGateways: {313, "Set spec.nodeIP of the WindowsInstance to the address for the Node, or remove the " +
		"default gateway from all other network cards."},
	ReasonAPIServerUnreachable: {314, "Depending on the message, make the host resolve the API server's name, open " +
		"the API server's TCP port for the host, or exclude the API server's address from TLS inspection. If hosts " +
		"need another address, set spec.apiServer of the WindowsMachineConfig. On OpenShift, the address is " +
		"status.apiServerInternalURI of the Infrastructure cluster: make hosts resolve that name."},
	ReasonHostInClusterNetwork: {315, "Give the host an address outside of these networks. If the host already has " +
		"such an address, set spec.nodeIP of the WindowsInstance to that address. You can't change these networks."},
	ReasonAddressHidden: {316, "On the host, or in the template of its Machine, add the line exclude-nics= to the " +
		"section [guestinfo] of C:\\ProgramData\\VMware\\VMware Tools\\tools.conf. If the file or the section is " +
		"missing, create it."},
	ReasonPreparing:      {401, "Nothing to do."},
	ReasonRebooting:      {402, "Nothing to do."},
	ReasonRebootTimedOut: {403, "Look at the host's console. The operator continues when the host is up again."},
	ReasonFeatureMissing: {404, "Run Install-WindowsFeature Containers on the host and read its error."},
	ReasonDaemonCallFailed: {405, "Read the message. If a virus scanner or a policy blocks the program, allow the " +
		"program there."},
	ReasonRebootIneffective: {406, "If the host is joining, the message names the host name or the Windows feature " +
		"that a reboot did not keep. Find out what reverts it at each boot, such as cloud-init or guest " +
		"customization. The operator reboots the host once an hour until the change persists. If the host is a node, " +
		"find out what sets the annotation reboot-required or reboot-pending of the Node, and stop it. When these " +
		"annotations are gone, this reason disappears. For one more reboot, remove the annotation reboot from the " +
		"Node, and set it again an hour after the last reboot."},
	ReasonHostBusy: {407, "Nothing to do: the operator tries again. If this lasts, look for a process wicd-….exe on " +
		"the host, find out what the process waits for, and end it."},
	ReasonRebootFailed: {408, "Read the error in the message, which may come from a policy. The operator tries " +
		"again. If you reboot the host by hand while its node is drained, the operator continues at once."},
	ReasonPayloadCorrupt: {501, "Nothing to do: the operator sends the data again. If this repeats, check the " +
		"host's disk and the network."},
	ReasonPayloadIncomplete: {502, "Nothing to do: the transfer continues with the missing parts. If the message " +
		"names a virus scanner or a file that is in use, exclude C:\\k\\store from virus scanners."},
	ReasonServiceFailed: {601, "Read the log of the service in C:\\var\\log on the host. If the service is " +
		"marked for deletion, close the Services console."},
	ReasonFileFailed: {602, "Check which program has the file open, and the free space on drive C:."},
	ReasonManifestInvalid: {603, "Nothing to do: the operator publishes the manifest again. If this repeats, file a " +
		"bug that quotes the message."},
	ReasonManifestMissing:    {604, "Nothing to do: the operator publishes the manifest."},
	ReasonCertificatePending: {605, "Check that kube-controller-manager signs requests (kubectl get csr)."},
	ReasonCertificateDenied:  {606, "Run kubectl describe csr: the conditions and events of the request say why."},
	ReasonNetworkPending: {607, "If the host network service does not answer, restart hns on the host. On OpenShift, " +
		"check the annotation k8s.ovn.org/hybrid-overlay-node-subnet of the Node and the log of hybrid-overlay-node. " +
		"With flannel, check spec.podCIDR of the Node and the log of flanneld."},
	ReasonEnvironmentFailed: {608, "Check the group policies of the host."},
	ReasonForeignInterference: {609, "Find the tool or group policy that makes the change. Add an exception there " +
		"for the objects in the message."},
	ReasonTrustFailed: {610, "Check the group policies of the host, and whether a virus scanner protects the store."},
	ReasonRouteFailed: {612, "Check the default route of the host."},
	ReasonTokenPending: {613, "Nothing to do. If this lasts, read the cause in the message. If the API server " +
		"refuses the token, apply the operator's manifests again."},
	ReasonNetworkNotRemoved: {614, "Nothing to do: the daemon tries again. If this lasts, reboot the host: flannel's " +
		"networks end with the boot."},
	ReasonTokenExpiring: {615, "Read the cause in the message. If the API server refuses the token, apply the " +
		"operator's manifests again; if the token can't be written, free space on drive C: or exclude the daemon's " +
		"files from scans."},
	ReasonStateLost: {616, "Nothing to do: the operator joins the host again."},
	ReasonNodePending: {701, "Nothing to do. If this lasts, read C:\\var\\log\\kubelet\\kubelet.log on the host. If " +
		"the message names spec.podCIDR, run kube-controller-manager with --allocate-node-cidrs."},
	ReasonNodeNotReady: {702, "See the Node's Ready condition (kubectl describe node)."},
	ReasonNodeForeign: {703, "Rename the host, or delete the Node if nothing uses it. If the Node belongs to this " +
		"host, set spec.nodeIP of the WindowsInstance to the Node's address."},
	ReasonRevisionPending: {704, "Nothing to do. If this lasts, see the apply-status annotation of the Node and " +
		"C:\\var\\log\\wicd on the host."},
	ReasonNodeReady: {705, "Nothing to do."},
	ReasonUpdateFailed: {706, "Read the message, the annotation apply-status of the Node, and C:\\var\\log on the " +
		"host. If the rollout is halted, see W707."},
	ReasonRolloutHalted: {707, "See status.rollout.failures of the WindowsMachineConfig. Publish another revision: " +
		"update the operator or revert the setting. Or continue with this revision: kubectl annotate winconf cluster " +
		"windowsmachineconfig.openshift.io/resume-rollout=<revision>."},
	ReasonStaging: {708, "Nothing to do. If this lasts, see the stage-status annotation of the Node."},
	ReasonMaintenanceWindowClosed: {709, "Wait until the time that the message names. To start earlier, add a window " +
		"to spec.rollout.maintenanceWindows of the WindowsMachineConfig."},
	ReasonSkewUnsupported: {710, "Nothing to do: the operator joins the host again. If it can't reach the host, " +
		"install a release of the operator that is between the two releases."},
	ReasonSettling: {711, "Nothing to do."},
	ReasonUncordoned: {712, "Nothing to do: the operator tries again later. To keep the operator away from the node, " +
		"set spec.paused of its WindowsInstance."},
	ReasonDaemonUnresponsive: {713, "Nothing to do: when the rollout budget allows, the operator joins the host " +
		"again, and the daemon starts with a new certificate. If this repeats, find out what stops or disables the " +
		"service windows-instance-config-daemon, such as a virus scanner, and read C:\\var\\log\\wicd on the host."},
	ReasonRollbackTimedOut: {714, "Find the cause in the message, in the Node's annotation apply-status, or in " +
		"C:\\var\\log on the host, and correct it. The daemon tries again until it succeeds. Or publish another " +
		"revision, and the node is upgraded to that revision. Or delete the Node: the operator then joins the host " +
		"again at its previous revision."},
	ReasonNodeOrphaned: {715, "If the removal of the host was forced, or its Machine is gone, nothing to do: if the " +
		"daemon still runs, it cleans the host, and when the Node has been NotReady for five minutes, the operator " +
		"deletes the Node. If the Machine is gone and the Node stays for longer, delete the Node. In other cases, " +
		"list the host again, in windows-instances or as a WindowsInstance: it joins and is uncordoned. To remove a " +
		"host that you listed again, remove its entry or WindowsInstance: the operator cleans the host."},
	ReasonSlotsUnwritable: {716, "If the message names a policy or a missing right, allow the operator to write the " +
		"ConfigMap. Otherwise delete the ConfigMap: kubectl delete configmap windows-rollout-places -n <namespace>. " +
		"The operator creates it again from the WindowsInstances."},
	ReasonLabelsRefused: {717, "Correct spec.labels and spec.taints of the WindowsInstance, as the message says. The " +
		"operator sets all valid labels and taints, except labels of another operating system or of a role of the " +
		"control plane. If all labels and taints are correct, allow the operator to write them: the message names " +
		"the policy, the webhook or the missing right."},
	ReasonDraining: {801, "Nothing to do."},
	ReasonDrainBlocked: {802, "Find the PodDisruptionBudget that blocks the eviction, or delete the pods that the " +
		"message names."},
	ReasonCleanupFailed: {803, "Remove the objects that the message names. If a program has them open, end the " +
		"program or reboot the host. The operator tries again. C:\\var\\log\\wicd\\cleanup.log on the host lists " +
		"everything that was removed, left or kept. If the host no longer exists, or need not be cleaned, set " +
		"spec.removalPolicy of the WindowsInstance to Force."},
	ReasonMachineLeaving: {804, "Nothing to do: the Machine's controller drains the Node and deletes the host. If " +
		"the Machine has no nodeRef, the operator drains the Node. If this lasts, read the conditions of the Machine."},
	ReasonRemovalPending: {805, "Nothing to do while other nodes are unavailable: the removal begins when they are " +
		"back. If spec.rollout.maxUnavailable is 0, set another value. To remove the host at once, set " +
		"spec.removalPolicy of the WindowsInstance to Force: the removal then does not wait for pods, and continues " +
		"if the host can't be cleaned."},
	ReasonWaitingForSlot: {810, "Nothing to do, or increase spec.rollout.maxConcurrentJoins of the " +
		"WindowsMachineConfig."},
	ReasonPaused:          {811, "To continue, set spec.paused to false."},
	ReasonInProgress:      {812, "Nothing to do."},
	ReasonPreflightOnly:   {813, "Delete the WindowsInstance. To join the host, list it in windows-instances."},
	ReasonHostListed:      {814, "Nothing to do. To see the state of the host, run kubectl windows status."},
	ReasonMachineReplaced: {820, "Nothing to do."},
	ReasonBudgetExhausted: {821, "Wait a few minutes. If the reason stays, repair or uncordon the named nodes, lower " +
		"the replicas of MachineSets that can't make all their Machines, or raise spec.rollout.maxUnavailable of the " +
		"WindowsMachineConfig."},
	ReasonOwnerDegraded: {822, "Wait a few minutes. If the reason stays, look at the other Machines of the " +
		"MachineSet, or lower the annotation windowsmachineconfig.openshift.io/min-available of the MachineSet."},
	ReasonMachineUnowned: {823, "Delete the Machine by hand, or authorise the public key on its host."},
	ReasonMachineIgnored: {824, "Remove the label, or delete the Machine by hand."},
	ReasonMachineManagedElsewhere: {825, "Delete the Machine of that API by hand, or authorise the public key on its " +
		"host."},
	ReasonReplacementIneffective: {826, "Nothing to do while the new Machines start. If this lasts, check that the " +
		"MachineSet's userDataSecret names windows-user-data, and that the template runs the user data. On platforms " +
		"without user data, add the public key to the template itself. The operator replaces Machines again when the " +
		"private key changes, when a Machine of the MachineSet accepts the key, or when you delete the ConfigMap " +
		"windows-machine-replacements."},
	ReasonUserDataStale: {827, "Nothing to do. If this lasts, look at the secret windows-user-data in " +
		"openshift-machine-api. The operator does not replace Machines of a MachineSet that has your own user data: " +
		"add the key to that user data, then delete the Machines."},
	ReasonInternal: {899, "Read the message. If it does not help, file a bug that quotes it."},
	ReasonPrivateKeyMissing: {901, "Create it in the operator's namespace: kubectl create secret generic " +
		"cloud-private-key --from-file=private-key.pem=<file> -n <namespace>."},
	ReasonPrivateKeyInvalid: {902, "Supply a key in PEM or OpenSSH format without a passphrase: Ed25519, ECDSA, or " +
		"RSA of at least 2048 bits."},
	ReasonNetworkUnsupported: {903, "On OpenShift, use OVN-Kubernetes with hybrid networking configured. On other " +
		"clusters, set spec.network.type of the WindowsMachineConfig to External or Flannel."},
	ReasonClusterFactsIncomplete: {904, "Create or correct the object that the message names. If the operator may " +
		"not read it, apply the operator's manifests again."},
	ReasonPayloadMissing: {905, "Build the image with a complete payload (make payload)."},
	ReasonVersionUnsupported: {906, "Build the image with a kubelet that fits, as the message says: make image " +
		"MINORS=1.37,1.36 or MINORS=all, with a new VERSION=. Install this version. If no pinned kubelet fits, " +
		"install another version of the operator."},
	ReasonAPICallFailed: {907, "Nothing to do: the operator tries again, and work on hosts continues where it " +
		"stopped. If this lasts, check the API server. If the message names a policy or webhook, allow the request " +
		"there."},
	ReasonMirrorRejected: {908, "Correct the named source or mirror in the ImageDigestMirrorSet, ImageTagMirrorSet, " +
		"ImageContentSourcePolicy, Image or WindowsMachineConfig that the message names. All other rules still apply."},
	ReasonPullSecretInvalid: {909, "Correct .dockerconfigjson of the secret: pull-secret in openshift-config on " +
		"OpenShift, and the secret in spec.pullSecret of the WindowsMachineConfig on other clusters. If the secret " +
		"does not exist, create it. Nodes keep the last valid pull secret, and use its valid entries. An entry is " +
		"valid if it names a registry and holds credentials; credential helpers don't exist on nodes."},
	ReasonCertificateRejected: {910, "Remove or replace the named certificate. Nodes trust all other certificates in " +
		"its bundle."},
	ReasonTrustSourceMissing: {911, "Add the certificates to the named ConfigMap, or remove the ConfigMap from the " +
		"setting. Until then, nodes keep the certificates that they got by this setting."},
	ReasonProxyInvalid: {912, "On OpenShift, correct the named field of the Proxy cluster. On other clusters, " +
		"correct spec.proxy of the WindowsMachineConfig. A proxy is http://host:port or https://host:port. " +
		"Nodes keep the last valid proxy."},
	ReasonKubeletConfigRefused: {913, "Correct or remove the named field. Nodes keep the last accepted " +
		"configuration. If their kubelet refuses that configuration as well, they get the operator's defaults."},
	ReasonSettingInvalid: {915, "Correct the named field. Until then, nodes use the default value of the field."},
	ReasonDesiredStateTooLarge: {916, "Reduce the number of CA certificates or mirror rules. Nodes keep the last " +
		"published revision."},
	ReasonUserDataForeign: {917, "Delete the secret, or remove its ownerReferences and its label " +
		"app.kubernetes.io/managed-by. To use your user data, put it into a Secret with another name, and name that " +
		"Secret in the MachineSet."},
	ReasonUserDataForbidden: {918, "Apply the operator's manifests again: config/machine-api for " +
		"openshift-machine-api, and config/cluster-api for openshift-cluster-api. See docs/machines.md."},
	ReasonHostKeySecretInvalid: {919, "Delete the secret: the operator creates a new one. Until then, the operator " +
		"trusts new machines at first contact."},
	ReasonRolloutSettingInvalid: {920, "Correct the named field. Until then, the operator disrupts no node that is " +
		"in service."},
	ReasonVXLANPortDefault: {921, "If pods on Windows nodes reach pods on other nodes, nothing to do. Otherwise " +
		"install the cluster with another port, such as 9898, as hybridOverlayVXLANPort: the port can't be changed " +
		"later."},
	ReasonSettingNotHere: {922, "Remove the named field, and change the named object instead. Nodes use the object's " +
		"value."},
	ReasonBootstrapNotGranted: {923, "Apply the operator's manifests again: they create the ServiceAccount " +
		"node-bootstrapper in the operator's namespace, and bind it to the ClusterRole system:node-bootstrapper."},
	ReasonServicesNotGranted: {928, "Allow the group system:nodes to list and watch EndpointSlices: apply " +
		"config/kubernetes/flannel, or on OpenShift restore the binding system:node-proxiers."},
	ReasonFlannelUnsupported: {929, "Correct net-conf.json in the ConfigMap kube-flannel/kube-flannel-cfg as the " +
		"message says, and restart flannel's pods on all nodes: docs/kubernetes.md has a configuration that works. " +
		"Joined nodes keep the last published revision."},
	ReasonLinuxPodPlaced: {930, "Add the node selector kubernetes.io/os: linux to the pod's workload, which is " +
		"usually a DaemonSet that tolerates all taints."},
	ReasonImageNotForNode: {931, "Use an image of that build, or run the pod on nodes of the image's build: set the " +
		"RuntimeClass of the build, such as windows2022."},
	ReasonPodUnplaceable: {932, "Change what the message names in the pod's workload: the node selector, " +
		"RuntimeClass, tolerations or requests. Or add a node that meets the requirements."},
	ReasonPodsNotRead: {933, "Read the error in the operator's log. If the error does not help, run kubectl get " +
		"pods -A --field-selector spec.nodeName=<node>, and look for thousands of pods, or for pods of about a " +
		"megabyte. Limit their namespace with a quota."},
	ReasonAnotherOperator: {934, "Remove this operator or the operator that the message names. To keep the named " +
		"operator, delete the namespace of this operator. Then install the named operator again, because this " +
		"operator may have overwritten its ClusterRoles and policies. To move to this namespace, first remove the " +
		"hosts, then the named operator. If the named operator and its hosts no longer exist: kubectl patch winconf " +
		"cluster --subresource=status --type=json -p '[{\"op\":\"remove\",\"path\":\"/status/operator\"}]'."},
	ReasonAPIServerInternal: {935, "Set spec.apiServer of the WindowsMachineConfig to a URL at which machines " +
		"outside the cluster reach the API server, for example at the control plane's load balancer."},
	ReasonNetworksOverlap: {936, "Give pods and Services separate networks. If the named network of pods is wrong, " +
		"correct podSubnet in the ConfigMap kube-system/kubeadm-config. Otherwise create the cluster again with " +
		"other networks."},
	ReasonRevisionNotPublished: {938, "Wait a few minutes. If the reason stays, grant the right, change the policy " +
		"or quota, or remove the object or finalizer that the message names. Until then, nodes keep the last " +
		"published revision."},
	ReasonSettingsMissing: {939, "Create the object again, or change it after the operator has restored it. To " +
		"return to a default value, remove the field from the object."},
}
