package contract

import (
	"errors"
	"fmt"
	"slices"
)

// Reason is a CamelCase word for why something waits or fails, the same in conditions, events,
// metrics and logs. Its number is stable and findable in the docs; its fix tells an administrator
// what to do.
type Reason string

// Problem is a reason with what is particular to one case. It is an error in the operator and in the daemon.
type Problem struct {
	Reason Reason `json:"reason"`
	// Detail names the object and the cause, without secrets.
	Detail string `json:"detail"`
}

// NewProblem makes a Problem with a formatted detail.
func NewProblem(reason Reason, format string, args ...any) *Problem {
	return &Problem{Reason: reason, Detail: fmt.Sprintf(format, args...)}
}

// Error says the detail, followed by number and reason.
func (p *Problem) Error() string {
	return fmt.Sprintf("%s (%s %s)", p.Detail, p.Reason.Code(), p.Reason)
}

// AsProblem finds a Problem in an error's chain.
func AsProblem(err error) (*Problem, bool) {
	p := new(Problem)
	if errors.As(err, &p) {
		return p, true
	}
	return nil, false
}

// ProblemOf is the problem that an error holds; any other error gets the reason.
func ProblemOf(reason Reason, err error) *Problem {
	if p, ok := AsProblem(err); ok {
		return p
	}
	return NewProblem(reason, "%v", err)
}

// Same reports whether two problems say the same.
func Same(a, b *Problem) bool { return *a == *b }

// JoinProblems makes one error of all problems; nil without any.
func JoinProblems(problems []*Problem) error {
	all := make([]error, len(problems))
	for i, p := range problems {
		all[i] = p
	}
	return errors.Join(all...)
}

// Explanation is what the reference page and a status show for a reason. The number is for people:
// nothing is decided by it.
type Explanation struct {
	Reason Reason
	Number int
	// When says in a sentence when it occurs; Fix what to do about it.
	When, Fix string
	// About says which condition of a host a failure for this reason makes False, if any.
	About Subject
}

// Subject is what a reason says something about.
type Subject string

// Subjects that have a condition of their own.
const (
	AboutReach Subject = "reaching the host"
	AboutHost  Subject = "the host itself"
)

// row is an Explanation in the lists below.
type row struct {
	reason    Reason
	number    int
	when, fix string
}

// about makes explanations of rows.
func about(subject Subject, rows []row) []Explanation {
	all := make([]Explanation, len(rows))
	for i, r := range rows {
		all[i] = Explanation{Reason: r.reason, Number: r.number, When: r.when, Fix: r.fix, About: subject}
	}
	return all
}

// Number of the reason, or 0 for one that is not in Explanations.
func (r Reason) Number() int { return explain(r).Number }

// Code is the number as users read it, such as W203.
func (r Reason) Code() string { return fmt.Sprintf("W%d", r.Number()) }

// Known says whether the reason is one of Explanations.
func (r Reason) Known() bool { return explain(r).When != "" }

// IsBesideRevision says that a daemon which reports a reason for a node says nothing of its revision: that may hold, or
// not.
func (r Reason) IsBesideRevision() bool { return r == ReasonTokenExpiring || r == ReasonRebootFailed }

// About says which condition of a host a failure for the reason makes False, if any.
func (r Reason) About() Subject { return explain(r).About }

// Fix says what an administrator can do.
func (r Reason) Fix() string { return explain(r).Fix }

func explain(r Reason) Explanation {
	for _, e := range Explanations() {
		if e.Reason == r {
			return e
		}
	}
	return Explanation{Reason: r}
}

// Reasons, by what they are about: 1xx the entry, 2xx reaching the host, 3xx the host itself, 4xx
// preparing and rebooting, 5xx the payload, 6xx services, files and certificates, 7xx the Node, 8xx
// leaving and waiting, 9xx the cluster.
const (
	ReasonEntryMalformed      Reason = "EntryMalformed"
	ReasonAddressUnresolvable Reason = "AddressUnresolvable"
	ReasonAddressDuplicate    Reason = "AddressDuplicate"
	ReasonHostDuplicate       Reason = "HostDuplicate"
	ReasonEntrySettingUnknown Reason = "EntrySettingUnknown"
	ReasonEntryNotUTF8        Reason = "EntryNotUTF8"
	ReasonEntryUserInvalid    Reason = "EntryUserInvalid"
	ReasonEntryPortInvalid    Reason = "EntryPortInvalid"
	ReasonEntryHostKeyInvalid Reason = "EntryHostKeyInvalid"

	ReasonMachineNameTaken         Reason = "MachineNameTaken"
	ReasonMachineNameInvalid       Reason = "MachineNameInvalid"
	ReasonMachineAddressUnusable   Reason = "MachineAddressUnusable"
	ReasonMachineAnnotationInvalid Reason = "MachineAnnotationInvalid"
	ReasonInstanceRefused          Reason = "InstanceRefused"
	ReasonConfigMapMissing         Reason = "ConfigMapMissing"

	ReasonUnreachable      Reason = "Unreachable"
	ReasonKeyRefused       Reason = "KeyRefused"
	ReasonHostKeyMismatch  Reason = "HostKeyMismatch"
	ReasonConnectionLost   Reason = "ConnectionLost"
	ReasonNotSSH           Reason = "NotSSH"
	ReasonNoSFTP           Reason = "NoSFTP"
	ReasonKeyNotAuthorized Reason = "KeyNotAuthorized"
	ReasonHostKeyUnproven  Reason = "HostKeyUnproven"
	ReasonOutputTooLarge   Reason = "OutputTooLarge"
	ReasonNoSession        Reason = "NoSession"

	ReasonBuildUnsupported     Reason = "BuildUnsupported"
	ReasonVXLANPortUnsupported Reason = "VXLANPortUnsupported"
	ReasonStaticAddress        Reason = "StaticAddress"
	ReasonSeveralGateways      Reason = "SeveralGateways"
	ReasonDiskFull             Reason = "DiskFull"
	ReasonClockSkewed          Reason = "ClockSkewed"
	ReasonHostnameInvalid      Reason = "HostnameInvalid"
	ReasonAddressHidden        Reason = "AddressHidden"
	ReasonPortInUse            Reason = "PortInUse"
	ReasonConflictingSoftware  Reason = "ConflictingSoftware"
	ReasonNotAdministrator     Reason = "NotAdministrator"
	ReasonNoDefaultRoute       Reason = "NoDefaultRoute"
	ReasonMetadataUnavailable  Reason = "MetadataUnavailable"
	ReasonNodeIPMissing        Reason = "NodeIPMissing"
	ReasonAPIServerUnreachable Reason = "APIServerUnreachable"
	ReasonHostInClusterNetwork Reason = "HostInClusterNetwork"

	ReasonPreparing         Reason = "Preparing"
	ReasonRebooting         Reason = "Rebooting"
	ReasonRebootTimedOut    Reason = "RebootTimedOut"
	ReasonFeatureMissing    Reason = "FeatureMissing"
	ReasonDaemonCallFailed  Reason = "DaemonCallFailed"
	ReasonRebootIneffective Reason = "RebootIneffective"
	ReasonHostBusy          Reason = "HostBusy"
	ReasonRebootFailed      Reason = "RebootFailed"

	ReasonPayloadCorrupt    Reason = "PayloadCorrupt"
	ReasonPayloadIncomplete Reason = "PayloadIncomplete"

	ReasonServiceFailed       Reason = "ServiceFailed"
	ReasonFileFailed          Reason = "FileFailed"
	ReasonManifestInvalid     Reason = "ManifestInvalid"
	ReasonManifestMissing     Reason = "ManifestMissing"
	ReasonCertificatePending  Reason = "CertificatePending"
	ReasonCertificateDenied   Reason = "CertificateDenied"
	ReasonNetworkPending      Reason = "NetworkPending"
	ReasonEnvironmentFailed   Reason = "EnvironmentFailed"
	ReasonForeignInterference Reason = "ForeignInterference"
	ReasonTrustFailed         Reason = "TrustFailed"
	ReasonDecryptionFailed    Reason = "DecryptionFailed"
	ReasonTokenPending        Reason = "TokenPending"
	ReasonTokenExpiring       Reason = "TokenExpiring"
	ReasonRouteFailed         Reason = "RouteFailed"
	ReasonNetworkNotRemoved   Reason = "NetworkNotRemoved"

	ReasonNodePending     Reason = "NodePending"
	ReasonNodeNotReady    Reason = "NodeNotReady"
	ReasonNodeForeign     Reason = "NodeForeign"
	ReasonRevisionPending Reason = "RevisionPending"
	ReasonNodeReady       Reason = "NodeReady"

	ReasonUpdateFailed            Reason = "UpdateFailed"
	ReasonRollbackTimedOut        Reason = "RollbackTimedOut"
	ReasonRolloutHalted           Reason = "RolloutHalted"
	ReasonStaging                 Reason = "Staging"
	ReasonMaintenanceWindowClosed Reason = "MaintenanceWindowClosed"
	ReasonSkewUnsupported         Reason = "SkewUnsupported"
	ReasonSettling                Reason = "Settling"
	ReasonUncordoned              Reason = "Uncordoned"
	ReasonDaemonUnresponsive      Reason = "DaemonUnresponsive"
	ReasonNodeOrphaned            Reason = "NodeOrphaned"
	ReasonPlacesUnwritable        Reason = "PlacesUnwritable"
	ReasonLabelsRefused           Reason = "LabelsRefused"

	ReasonDraining       Reason = "Draining"
	ReasonDrainBlocked   Reason = "DrainBlocked"
	ReasonCleanupFailed  Reason = "CleanupFailed"
	ReasonRemovalPending Reason = "RemovalPending"
	ReasonWaitingForSlot Reason = "WaitingForSlot"
	ReasonPaused         Reason = "Paused"
	ReasonInProgress     Reason = "InProgress"
	ReasonPreflightOnly  Reason = "PreflightOnly"
	ReasonHostListed     Reason = "HostListed"
	ReasonMachineLeaving Reason = "MachineLeaving"

	ReasonMachineReplaced         Reason = "MachineReplaced"
	ReasonBudgetExhausted         Reason = "BudgetExhausted"
	ReasonOwnerDegraded           Reason = "OwnerDegraded"
	ReasonMachineUnowned          Reason = "MachineUnowned"
	ReasonMachineIgnored          Reason = "MachineIgnored"
	ReasonMachineManagedElsewhere Reason = "MachineManagedElsewhere"
	ReasonReplacementIneffective  Reason = "ReplacementIneffective"
	ReasonUserDataStale           Reason = "UserDataStale"
	ReasonInternal                Reason = "InternalError"

	ReasonPrivateKeyMissing      Reason = "PrivateKeyMissing"
	ReasonPrivateKeyInvalid      Reason = "PrivateKeyInvalid"
	ReasonNetworkUnsupported     Reason = "NetworkUnsupported"
	ReasonVXLANPortDefault       Reason = "VXLANPortDefault"
	ReasonFlannelUnsupported     Reason = "FlannelUnsupported"
	ReasonNetworksOverlap        Reason = "NetworksOverlap"
	ReasonAPIServerInternal      Reason = "APIServerInternal"
	ReasonSettingNotHere         Reason = "SettingNotHere"
	ReasonBootstrapNotGranted    Reason = "BootstrapNotGranted"
	ReasonServicesNotGranted     Reason = "ServicesNotGranted"
	ReasonSettingsMissing        Reason = "SettingsMissing"
	ReasonLinuxPodPlaced         Reason = "LinuxPodPlaced"
	ReasonImageNotForNode        Reason = "ImageNotForNode"
	ReasonPodUnplaceable         Reason = "PodUnplaceable"
	ReasonPodsNotRead            Reason = "PodsNotRead"
	ReasonAnotherOperator        Reason = "AnotherOperator"
	ReasonClusterFactsIncomplete Reason = "ClusterFactsIncomplete"
	ReasonPayloadMissing         Reason = "PayloadMissing"
	ReasonVersionUnsupported     Reason = "VersionUnsupported"
	ReasonAPICallFailed          Reason = "APICallFailed"
	ReasonMirrorRejected         Reason = "MirrorRejected"
	ReasonPullSecretInvalid      Reason = "PullSecretInvalid"
	ReasonCertificateRejected    Reason = "CertificateRejected"
	ReasonTrustSourceMissing     Reason = "TrustSourceMissing"
	ReasonProxyInvalid           Reason = "ProxyInvalid"
	ReasonKubeletConfigRefused   Reason = "KubeletConfigRefused"
	ReasonSettingInvalid         Reason = "SettingInvalid"
	ReasonDesiredStateTooLarge   Reason = "DesiredStateTooLarge"
	ReasonUserDataForeign        Reason = "UserDataForeign"
	ReasonUserDataForbidden      Reason = "UserDataForbidden"
	ReasonHostKeySecretInvalid   Reason = "HostKeySecretInvalid"
	ReasonRolloutSettingInvalid  Reason = "RolloutSettingInvalid"
	ReasonLatestNotPublished     Reason = "LatestNotPublished"
	ReasonRevisionNotPublished   Reason = "RevisionNotPublished"
)

// Explanations lists every reason, by number.
func Explanations() []Explanation {
	return slices.Concat(about(AboutReach, entryExplanations()),
		about(AboutReach, reachExplanations()), about(AboutHost, hostExplanations()),
		about("", prepareExplanations()), about("", serviceExplanations()), about("", nodeExplanations()),
		about("", leaveExplanations()), about("", machineExplanations()), about("", clusterExplanations()),
		about("", publishedExplanations()), about("", kindExplanations()),
		about("", workloadExplanations()))
}

// entryExplanations are about what a host is known by: an entry, or a Machine.
func entryExplanations() []row {
	return []row{
		{ReasonEntryMalformed, 101, "An entry of windows-instances is not understood.",
			"Write the entry as <IPv4 address or DNS name>: username=<name>. The other entries are not affected."},
		{ReasonAddressUnresolvable, 102,
			"A DNS name in windows-instances does not resolve to an IPv4 address.",
			"Correct the name, or add its A record to the DNS server that the operator's pod uses."},
		{ReasonAddressDuplicate, 103,
			"Two entries or Machines have the same address.",
			"Remove one of the two. The older one stays in charge. If one is being removed already and stays, its " +
				"WindowsInstance says why; if its host is gone for good, set spec.removalPolicy there to Force."},
		{ReasonHostDuplicate, 104,
			"Another instance already stands for the host behind this entry or Machine, or for a host of the " +
				"same name or with a copy of its disk. Of a host that is to be removed: another machine answers at " +
				"its address, with the same SSH host key.",
			"Remove or rename one of the two. Give a cloned host its own identity with sysprep, and SSH host keys of " +
				"its own. " +
				"For a removal, have the address lead to the host again: look at DNS, DHCP and forwarded ports. The " +
				"machine that answered was not cleaned."},
		{ReasonMachineNameTaken, 105,
			"A WindowsInstance of the Machine's name exists that was not made from this Machine.",
			"Delete that WindowsInstance, or the entry that it was made from."},
		{ReasonMachineNameInvalid, 106,
			"The Machine's name can't be a host name, and on this platform the host takes the name of its " +
				"Machine.",
			"Give its MachineSet a shorter name. A Machine's name may have at most 15 characters, six of which " +
				"follow the name of the set: lower-case letters, digits and hyphens, not digits only."},
		{ReasonMachineAddressUnusable, 107,
			"The Machine has addresses, but no internal IPv4 address and no name that resolves to one.",
			"Give the Machine an IPv4 address in the cluster's network, or add an A record of its name to the " +
				"DNS server that the operator's pod uses."},
		{ReasonMachineAnnotationInvalid, 108, "An annotation of the Machine is not understood.",
			"Correct the annotation that is named."},
		{ReasonConfigMapMissing, 109,
			"The ConfigMap windows-instances is absent, and instances were made from it. They are removed when it " +
				"stays " +
				"absent for a minute.",
			"Create it again if its hosts are to stay. To remove all of them, leave it absent, or empty it, which is " +
				"followed at once."},
		{ReasonInstanceRefused, 110,
			"The API server refuses to make the WindowsInstance of a Machine or of an entry of windows-instances.",
			"Change the quota or policy that the message names, or give the operator its rights back. It is tried " +
				"again every 30 seconds."},
		{ReasonEntrySettingUnknown, 111, "An entry of windows-instances has a setting that does not exist.",
			"Use username=<name>, port=<number> and hostKey=<type> <base64> only, each on a line of its own."},
		{ReasonEntryNotUTF8, 112, "An entry of windows-instances is not UTF-8. Its host stays as it is.",
			"Create the entry again from a file in UTF-8. Windows PowerShell writes UTF-16 with >: use " +
				"Set-Content -Encoding utf8 there."},
		{ReasonEntryUserInvalid, 113, "An entry of windows-instances has no valid user name.",
			"Write username=<name>, and each further setting on a line of its own."},
		{ReasonEntryPortInvalid, 114, "An entry of windows-instances has no valid port.",
			"Write port=<number> with the port of the host's SSH server, or leave it out for 22."},
		{ReasonEntryHostKeyInvalid, 115, "An entry of windows-instances has no valid SSH host key.",
			"Write hostKey=<type> <base64>, as a line of ssh-keyscan shows it."},
	}
}

// reachExplanations are about reaching the host.
func reachExplanations() []row {
	return []row{
		{ReasonUnreachable, 201,
			"Nothing answers at the host's SSH port.",
			"Check that the host is up, that sshd runs, and that TCP port 22 is open from the control plane."},
		{ReasonKeyRefused, 202, "The host refuses the private key for this user.",
			"Add the public key to C:\\ProgramData\\ssh\\administrators_authorized_keys on the host, owned by " +
				"Administrators and SYSTEM only, and check the user name."},
		{ReasonHostKeyMismatch, 203,
			"The host shows another SSH host key than the one that was given or pinned.",
			"If the host was reinstalled, give the new key: as hostKey of its entry in windows-instances if it has " +
				"one there, which counts, else as spec.hostKey of the WindowsInstance. Or remove the entry, and add " +
				"it again once the WindowsInstance is gone. Otherwise another machine answers: find out which."},
		{ReasonConnectionLost, 204,
			"The connection broke during work on the host, or was ended because the host takes a transfer too slowly.",
			"It is tried again, and a transfer goes on where it broke. If it repeats, check the network between the " +
				"control plane and the host for what ends connections: a firewall, a proxy, a VPN, or packets that " +
				"are too large for a link (MTU). For a host that is too slow, find out what slows the line or the " +
				"host's disk: 64 KiB in a second are enough."},
		{ReasonNotSSH, 205,
			"Something other than an SSH server answers, or the server does not answer in time.",
			"Check the address and port, and whether sshd on the host is overloaded."},
		{ReasonNoSFTP, 206,
			"The host's SSH server accepts the key but offers no file transfer.",
			"Put the line \"Subsystem sftp sftp-server.exe\" into C:\\ProgramData\\ssh\\sshd_config and restart " +
				"sshd."},
		{ReasonHostKeyUnproven, 207,
			"The host announces further SSH host keys and does not prove that it has them.",
			"Find out what answers at this address: a host with OpenSSH proves its keys. Then delete the " +
				"Machine, or set spec.hostKey of the WindowsInstance."},
		{ReasonKeyNotAuthorized, 208,
			"The host has joined with an earlier private key and refuses the present one.",
			"Add the public key to C:\\ProgramData\\ssh\\administrators_authorized_keys on the host. Until then " +
				"the node goes on working, and only what needs SSH waits. A Machine is replaced automatically, as " +
				"far as the rollout budget and its MachineSet allow."},
		{ReasonOutputTooLarge, 209,
			"The host sent more than any answer of the daemon has, so the operator closed the connection.",
			"Find out what answers at this address, and whether somebody else controls the host."},
		{ReasonNoSession, 210,
			"The host's SSH server transfers files and opens no session for a command.",
			"Set MaxSessions in C:\\ProgramData\\ssh\\sshd_config to 2 or more (OpenSSH's default is 10), " +
				"and restart " +
				"sshd."},
	}
}

// hostExplanations are about what preflight finds at the host.
func hostExplanations() []row {
	return []row{
		{ReasonBuildUnsupported, 301,
			"The Windows build is not supported.",
			"Use Windows Server 2019 (17763), 2022 (20348.681 or later) or 2025 (26100). Install Windows updates if " +
				"the message names one."},
		{ReasonDiskFull, 302, "The system drive has too little room for the payload and images.",
			"Free space on drive C: or enlarge it."},
		{ReasonClockSkewed, 303,
			"The host's clock is so wrong that certificates would not be valid.",
			"Set the host's time service (w32time) to the cluster's time source."},
		{ReasonHostnameInvalid, 304,
			"The host name can't be the name of a Node.",
			"Rename the host: lower-case letters, digits and hyphens, at most 63 characters, no hyphen at either " +
				"end. Windows ignores a new name that differs only in case, so choose a different one. Or set " +
				"spec.hostname of its WindowsInstance: the operator renames the host, unless it is a member of a " +
				"domain. On vSphere, the primary DNS suffix must be in lower case, too."},
		{ReasonPortInUse, 305, "Another program listens on a port that a node needs.",
			"Stop the program that is named, or move it to another port."},
		{ReasonConflictingSoftware, 306,
			"A container runtime or kubelet is installed that the operator did not install, or a directory that the " +
				"operator needs holds another operator's files, or files that others than Administrators could write.",
			"If another operator manages the host, remove the host there first. Otherwise uninstall the software, or " +
				"remove what the message names. The operator replaces nothing that it did not install."},
		{ReasonNotAdministrator, 307, "The user may log in but is not an administrator.",
			"Name a user who is a member of the local Administrators group."},
		{ReasonNoDefaultRoute, 308,
			"The host has no IPv4 default route, so its node address can't be determined.",
			"Configure a default gateway."},
		{ReasonMetadataUnavailable, 309,
			"The cloud's metadata service does not return the machine's name.",
			"Check that the machine can reach 169.254.169.254 and that the metadata service is not disabled for " +
				"it."},
		{ReasonNodeIPMissing, 310,
			"The host does not have the address in spec.nodeIP.",
			"Correct spec.nodeIP of the WindowsInstance, or give the host this address."},
		{ReasonVXLANPortUnsupported, 311,
			"The hybrid network has a VXLAN port of its own, which Windows Server 2019 does not support.",
			"Use Windows Server 2022 or 2025 for this host. The port is hybridOverlayVXLANPort in the " +
				"Network object of " +
				"the network operator."},
		{ReasonStaticAddress, 312,
			"The host has a static address, which Windows may lose when the container network is made.",
			"Run as an administrator on the host, then reboot it: reg add " +
				`HKLM\SYSTEM\CurrentControlSet\Services\hns\State /v DeviceLessNicDisabled /t REG_DWORD /d 1 /f. ` +
				"Or give it its address by DHCP."},
		{ReasonSeveralGateways, 313,
			"The host has several network cards with a default gateway, so it is not known which one is for " +
				"the cluster.",
			"Set spec.nodeIP of the WindowsInstance to the address that the Node is to have, or take the " +
				"default gateway " +
				"off the other cards."},
		{ReasonAPIServerUnreachable, 314,
			"The host can't reach the API server at the address that nodes use, or something else answers there.",
			"Look at the message: have the host resolve that name, open the TCP port for it, and keep programs " +
				"that inspect TLS off the way. Where the address is wrong for hosts, set spec.apiServer of the " +
				"WindowsMachineConfig; on OpenShift it is status.apiServerInternalURI of the Infrastructure cluster, " +
				"so have hosts resolve that name."},
		{ReasonHostInClusterNetwork, 315,
			"The host's address is one of those that the cluster gives to pods or Services, so neither they nor " +
				"Linux nodes would reach the host; or it is one of the API server or of ingress.",
			"Give the host an address outside of these networks, or set spec.nodeIP of the WindowsInstance to such " +
				"an address that it has. The networks of a cluster can't be changed: where they are those of the " +
				"site, hosts need others."},
		{ReasonAddressHidden, 316,
			"VMware Tools on the host don't report the addresses of interfaces named vEthernet, which is their " +
				"default. When the container network is made, the host's address moves to such an interface: vCenter " +
				"then shows no address, and the Machine and the Node lose theirs.",
			"On the host, or in the template of its Machine, add the line exclude-nics= to the section [guestinfo] " +
				"of " +
				`C:\ProgramData\VMware\VMware Tools\tools.conf. If the file or the section is missing, create it.`},
	}
}

// prepareExplanations are about preparing and rebooting the host, and about the payload.
func prepareExplanations() []row {
	return []row{
		{ReasonPreparing, 401,
			"The host name or Windows features are being set.",
			"Nothing to do."},
		{ReasonRebooting, 402, "The host is rebooting.", "Nothing to do."},
		{ReasonRebootTimedOut, 403,
			"The host did not come back from a reboot in time.",
			"Look at the host's console. The operator goes on when the host is up again."},
		{ReasonFeatureMissing, 404, "The Windows feature Containers could not be switched on.",
			"Run Install-WindowsFeature Containers on the host and look at its error."},
		{ReasonDaemonCallFailed, 405,
			"A command of the daemon's program on the host returned no answer.",
			"Read the message. If it names a virus scanner or a policy that blocks the program, allow the " +
				"program there."},
		{ReasonRebootIneffective, 406,
			"The host was rebooted three times in a row, and a reboot is still requested.",
			"While it joins: find out what keeps the host name or the Windows feature in the message from lasting " +
				"over a boot, such as cloud-init or guest customization that sets the old name again; the operator " +
				"reboots the host once an hour until it lasts. Later: find out what sets the annotation " +
				"reboot-required or reboot-pending of the Node, and stop it. This " +
				"reason goes away with the annotations. For one more reboot, remove the annotation reboot from the " +
				"Node and set it again an hour after the last one: a host could do the same to be rebooted for " +
				"ever."},
		{ReasonHostBusy, 407,
			"An earlier command of the daemon's program has been running on the host for more than a minute.",
			"Nothing to do: the operator tries again. If it does not end, look on the host for a process " +
				"wicd-….exe and what it waits for, and end it."},
		{ReasonRebootFailed, 408, "Windows does not reboot the host when the daemon asks for it.",
			"Read the error in the message, which may come from a policy. The operator tries again; reboot the host " +
				"by hand while its node is drained, and it goes on at once."},

		{ReasonPayloadCorrupt, 501,
			"What arrived on the host does not match its checksum.",
			"Nothing to do: what is damaged is sent again. If it repeats, check the host's disk and the network."},
		{ReasonPayloadIncomplete, 502,
			"The transfer ended early, or what came could not be stored, or did not stay on the host.",
			"Nothing to do: it goes on with what is missing. If the message names a virus scanner or a file that is " +
				"in use, exclude C:\\k\\store from virus scanners."},
	}
}

// serviceExplanations are about services, files and certificates.
func serviceExplanations() []row {
	return []row{
		{ReasonServiceFailed, 601,
			"A managed Windows service does not start or does not stay up.",
			"Read the log of the service in C:\\var\\log on the host. Where it is marked for deletion, close the " +
				"Services console."},
		{ReasonFileFailed, 602,
			"A managed file can't be written.",
			"Check which program has the file open, and the free space on drive C:."},
		{ReasonManifestInvalid, 603, "The services manifest can't be used.",
			"Nothing to do: the operator publishes it again. If it repeats, file a bug with the detail."},
		{ReasonManifestMissing, 604, "The services manifest of the desired revision does not exist.",
			"Nothing to do: the operator publishes it."},
		{ReasonCertificatePending, 605, "A certificate request waits to be approved or signed.",
			"Check that kube-controller-manager signs requests (kubectl get csr)."},
		{ReasonCertificateDenied, 606, "A certificate request was denied, or is refused.",
			"See the request's conditions and events for why (kubectl describe csr)."},
		{ReasonNetworkPending, 607,
			"The network of pods does not exist on the host yet, or the host network service does not answer.",
			"Where the service does not answer, restart hns on the host. On OpenShift, check the annotation " +
				"k8s.ovn.org/hybrid-overlay-node-subnet of the Node and the log of " +
				"hybrid-overlay-node; with flannel, spec.podCIDR of the Node and the log of flanneld."},
		{ReasonEnvironmentFailed, 608,
			"A system environment variable can't be set.",
			"Check the group policies of the host."},
		{ReasonForeignInterference, 609,
			"Something on the host keeps changing what the daemon manages.",
			"Find the tool or group policy that changes it, and exclude what the message names."},
		{ReasonTrustFailed, 610,
			"A CA certificate can't be added to the host's root store or removed from it.",
			"Check the group policies of the host, and whether a virus scanner protects the store."},
		{ReasonDecryptionFailed, 611,
			"What the daemon keeps encrypted on the host can't be decrypted any more.",
			"Nothing to do: the daemon reads it from the API server again. It happens after sysprep, or when the " +
				"disk was moved to another machine."},
		{ReasonRouteFailed, 612, "The route to the cloud's metadata service can't be set.",
			"Check the default route of the host."},
		{ReasonTokenPending, 613, "The daemon has no token for Azure's node manager or flanneld yet.",
			"Nothing to do; if it lasts, the message says why. Where the API server refuses it, apply the operator's " +
				"manifests again."},
		{ReasonNetworkNotRemoved, 614, "The HNS network that pods were on before can't be removed.",
			"Nothing to do: the daemon tries again. If it lasts, reboot the host: " +
				"flannel's networks end with the boot."},
		{ReasonTokenExpiring, 615,
			"The token of Azure's node manager or flanneld can't be renewed, and soon ends, or has ended.",
			"Read the cause in the message. Where the API server refuses it, apply the operator's manifests again; " +
				"where it can't be written, make room on drive C: or exclude the daemon's files from scans."},
	}
}

// nodeExplanations are about the Node.
func nodeExplanations() []row {
	return []row{
		{ReasonNodePending, 701, "kubelet has not registered its Node yet.",
			"Nothing to do; if it lasts, read C:\\var\\log\\kubelet\\kubelet.log on the host. Where the message " +
				"names spec.podCIDR, kube-controller-manager must run with --allocate-node-cidrs."},
		{ReasonNodeNotReady, 702, "The Node is not Ready.", "See the Node's Ready condition (kubectl describe node)."},
		{ReasonNodeForeign, 703,
			"A Node of this name exists and belongs to another host, or nothing but the host says that it is its own.",
			"Rename the host, or delete the Node if nothing uses it any more. If the Node is this host's, name its " +
				"address in spec.nodeIP of the WindowsInstance."},
		{ReasonRevisionPending, 704, "The daemon has not applied the desired revision yet.",
			"Nothing to do; if it lasts, see the apply-status annotation of the Node and C:\\var\\log\\wicd on the " +
				"host."},
		{ReasonNodeReady, 705, "The Node is Ready at the desired revision.", "Nothing to do."},
		{ReasonUpdateFailed, 706,
			"The node did not become Ready at the new revision in time, or its daemon could not apply it, so it goes " +
				"back to the previous one.",
			"Read the message, the annotation apply-status of the Node, and C:\\var\\log on the host. See also " +
				"RolloutHalted."},
		{ReasonRolloutHalted, 707,
			"As many nodes failed at the desired revision as spec.rollout.failureThreshold allows, so no other " +
				"node is taken to it.",
			"See status.rollout.failures of the WindowsMachineConfig. Publish another revision, by updating the " +
				"operator or by reverting the setting. Or go on with this one: kubectl annotate winconf cluster " +
				"windowsmachineconfig.openshift.io/resume-rollout=<revision>."},
		{ReasonStaging, 708, "The daemon fetches the payload of the desired revision while the node stays in service.",
			"Nothing to do; if it lasts, see the stage-status annotation of the Node."},
		{ReasonMaintenanceWindowClosed, 709,
			"No window of spec.rollout.maintenanceWindows is open.",
			"Wait until the time that the message names. To start earlier, add a window to " +
				"spec.rollout.maintenanceWindows of the WindowsMachineConfig."},
		{ReasonSkewUnsupported, 710, "The node is at a release that is more than two minor versions older, or more " +
			"than one newer, than the operator.", "Nothing to do: the operator joins its host again over SSH. If the " +
			"host can't be reached, install the operator version in between."},
		{ReasonSettling, 711, "The node is at its new revision, or back from its reboot, and has to stay Ready for " +
			"the settling time.", "Nothing to do."},
		{ReasonPlacesUnwritable, 716, "The list of places in the rollout budget can't be written, so no node is " +
			"disrupted: somebody made the ConfigMap windows-rollout-places immutable or too large, or a policy " +
			"of the cluster denies the write.",
			"If the message names a policy or a missing right, allow the operator to write it. Otherwise delete it " +
				"in the operator's namespace: kubectl delete configmap windows-rollout-places -n <namespace>. " +
				"It is made again from the WindowsInstances."},
		{ReasonUncordoned, 712,
			"Somebody uncordoned the node while the operator was draining it, so it stays in service.",
			"Nothing to do: it is tried again later. To keep the operator away from the node, set spec.paused of " +
				"its WindowsInstance."},
		{ReasonDaemonUnresponsive, 713,
			"kubelet is healthy, but the daemon has not acted on a request for as long as the operator's flag " +
				"--daemon-timeout says (5m by default), or its certificate has expired.",
			"Nothing to do: the operator joins the host again over SSH when the rollout budget allows, which " +
				"starts the daemon with a new certificate. If it happens again, look for what stops or disables the " +
				"service windows-instance-config-daemon, such as a virus scanner, and read C:\\var\\log\\wicd on the " +
				"host."},
		{ReasonRollbackTimedOut, 714,
			"The node did not get back to its previous revision within spec.rollout.verifyTimeout. It is out of " +
				"service and keeps its place in the rollout budget.",
			"Correct what the message, the annotation apply-status of the Node, or C:\\var\\log on the host " +
				"names: the daemon goes on trying. Or publish another revision, which the node then takes. Or delete " +
				"the Node: the operator then joins its host again over SSH, at the revision that it held."},
		{ReasonNodeOrphaned, 715,
			"The node is the operator's but has no WindowsInstance: its host left without being cleaned and came " +
				"back, or registered it while its Machine was deleted. It is cordoned.",
			"If its removal was forced, or its Machine is gone, nothing to do: the daemon cleans the host if it " +
				"still runs, and the Node is deleted when it has been NotReady for five minutes. Delete one yourself " +
				"that stays for longer though its Machine is gone. Otherwise list the host again, in " +
				"windows-instances or as a WindowsInstance: it joins and is uncordoned. To get rid of it, remove it " +
				"from there again, which cleans it."},
		{ReasonLabelsRefused, 717,
			"The API server refuses the labels or taints that the Node is to have, because a policy denies them or " +
				"they are not valid.",
			"Correct spec.labels and spec.taints of the WindowsInstance, as the message says. The operator sets what " +
				"Kubernetes takes as labels and taints, but neither another operating system nor a role of the " +
				"control plane. Where they are right, allow the operator the write: the message names the policy, " +
				"the webhook or the missing right."},
	}
}

// leaveExplanations are about leaving and waiting.
func leaveExplanations() []row {
	return []row{
		{ReasonDraining, 801,
			"Pods are being evicted from the node.",
			"Nothing to do."},
		{ReasonDrainBlocked, 802,
			"Pods could not be evicted from the node in time.",
			"See which PodDisruptionBudget blocks, or delete the pods that the message names."},
		{ReasonCleanupFailed, 803,
			"The host was cleaned, and something could not be removed.",
			"Remove what the message names, or end what holds it open, by a reboot if need be; it is tried again. " +
				"C:\\var\\log\\wicd\\cleanup.log on the host has all that was removed, left or kept. To let the " +
				"host go as it is, or if it is gone for good, set spec.removalPolicy of the WindowsInstance to Force."},
		{ReasonMachineLeaving, 804,
			"The Machine of this host is being deleted, and the host with it.",
			"Nothing to do: the Machine's controller drains the Node and deletes the host; where the Machine has no " +
				"nodeRef, the operator drains the Node. If it lasts, see the Machine."},
		{ReasonRemovalPending, 805,
			"The host is to be removed and waits for a place in the rollout budget. Its node is in service meanwhile.",
			"Nothing to do while other nodes are unavailable: it goes on when they are back. If " +
				"spec.rollout.maxUnavailable is 0, set another value. To remove it at once, set spec.removalPolicy " +
				"of the WindowsInstance to Force: its pods are not waited for, and a host that can't be cleaned is " +
				"left as it is."},
		{ReasonWaitingForSlot, 810, "As many hosts are joining as maxConcurrentJoins allows.",
			"Nothing to do; or raise spec.rollout.maxConcurrentJoins of the WindowsMachineConfig."},
		{ReasonPaused, 811,
			"spec.paused of the WindowsInstance is true.",
			"Set spec.paused to false to go on."},
		{ReasonInProgress, 812,
			"Work is in progress.",
			"Nothing to do."},
		{ReasonPreflightOnly, 813,
			"The host was checked and can join. It does not, because spec.preflightOnly of the instance is true.",
			"Delete the WindowsInstance, and list the host in windows-instances if it is to join."},
		{ReasonHostListed, 814,
			"The host was not checked, because another WindowsInstance has it already.",
			"Nothing to do. Run kubectl windows status to see how the host is."},
	}
}

// machineExplanations are about replacing Machines, and about what has no reason of its own.
func machineExplanations() []row {
	return []row{
		{ReasonMachineReplaced, 820,
			"The Machine's host refuses the present private key, so the Machine is deleted and its MachineSet " +
				"makes another.",
			"Nothing to do."},
		{ReasonBudgetExhausted, 821,
			"As many Windows nodes are unavailable or missing as spec.rollout.maxUnavailable allows, whatever " +
				"the cause.",
			"Nothing to do if it passes. Otherwise bring back or uncordon the nodes that are named, lower the " +
				"replicas of MachineSets that can't make all their Machines, or raise spec.rollout.maxUnavailable " +
				"of the WindowsMachineConfig."},
		{ReasonOwnerDegraded, 822,
			"Without this Machine too few nodes of its MachineSet would be in service.",
			"Nothing to do if it passes. Otherwise look at the other Machines of the set, or lower the " +
				"annotation windowsmachineconfig.openshift.io/min-available of the MachineSet."},
		{ReasonMachineUnowned, 823,
			"The Machine belongs to no MachineSet, so no other would be made in its place.",
			"Delete the Machine by hand, or authorise the public key on its host."},
		{ReasonMachineIgnored, 824, "The Machine has the label windowsmachineconfig.openshift.io/ignore.",
			"Remove the label, or delete the Machine by hand."},
		{ReasonMachineManagedElsewhere, 825,
			"The Machine is a copy of one of another API, which manages it.",
			"Delete the Machine of that API by hand, or authorise the public key on its host."},
		{ReasonReplacementIneffective, 826,
			"Machines were replaced, and none of the new ones has accepted the private key yet.",
			"Nothing to do while they start. If it lasts: does the MachineSet's userDataSecret name " +
				"windows-user-data, and does the template run it? On platforms that have no user data, the template " +
				"itself must hold the public key. It is tried again with another key, when a Machine of the set " +
				"accepts it, or when you delete the ConfigMap windows-machine-replacements."},
		{ReasonUserDataStale, 827,
			"The user data of new Machines does not hold the present key yet, or is another Secret than " +
				"windows-user-data.",
			"Nothing to do; if it lasts, look at the secret windows-user-data in openshift-machine-api. " +
				"Machines of a " +
				"MachineSet with user data of your own are not replaced: once that holds the key, delete them."},
		{ReasonInternal, 899,
			"An error occurred that has no reason of its own.",
			"Read the message. If it does not help, file a bug with it."},
	}
}

// clusterExplanations are about the cluster.
func clusterExplanations() []row {
	return []row{
		{ReasonPrivateKeyMissing, 901, "The secret cloud-private-key does not exist or lacks private-key.pem.",
			"Create it in the operator's namespace: kubectl create secret generic cloud-private-key " +
				"--from-file=private-key.pem=<file> -n <namespace>."},
		{ReasonPrivateKeyInvalid, 902,
			"The private key can't be used.",
			"Supply a key in PEM or OpenSSH format without a passphrase: Ed25519, ECDSA, or RSA of at least 2048 " +
				"bits."},
		{ReasonNetworkUnsupported, 903,
			"The cluster's network does not support Windows nodes.",
			"On OpenShift, use OVN-Kubernetes with hybrid networking configured. On other clusters, set " +
				"spec.network.type of the WindowsMachineConfig to External or Flannel."},
		{ReasonClusterFactsIncomplete, 904,
			"A fact that nodes need could not be read from the cluster.",
			"Create or correct the object that the message names. If it may not be read, apply the operator's " +
				"manifests again."},
		{ReasonPayloadMissing, 905, "The operator's payload lacks a file that every node needs.",
			"Build the image with a complete payload (make payload)."},
		{ReasonVersionUnsupported, 906,
			"No kubelet in the operator's payload fits the Kubernetes version of this cluster.",
			"Build the image with a kubelet that fits, as the message says: make image MINORS=1.37,1.36 or " +
				"MINORS=all. If none is pinned that fits, install another version of the operator."},
		{ReasonAPICallFailed, 907,
			"A call to the API server failed.",
			"Nothing to do: it is tried again, and work on hosts goes on where it was. If it lasts, look at the " +
				"API server, or at the policy or webhook that refuses it, as the message says."},
		{ReasonMirrorRejected, 908,
			"A mirror rule is not valid.",
			"Correct the source or mirror that is named, in the ImageDigestMirrorSet, ImageTagMirrorSet, " +
				"ImageContentSourcePolicy, Image or WindowsMachineConfig that " +
				"the message names. The other rules are in force."},
		{ReasonPullSecretInvalid, 909,
			"The cluster's pull secret, or an entry of it, is not valid, or the secret that spec.pullSecret " +
				"names never existed.",
			"Correct .dockerconfigjson of the secret pull-secret in openshift-config, or, where there is no " +
				"OpenShift, of the one that spec.pullSecret of the WindowsMachineConfig names; create it if " +
				"it does not exist. Nodes keep the last valid one, and use its valid entries. An entry is valid " +
				"if it names a registry and holds credentials; credential helpers don't exist on nodes."},
		{ReasonCertificateRejected, 910,
			"A certificate in a CA bundle is not valid or is not a CA certificate.",
			"Remove or replace the certificate that is named. The others in its bundle are trusted."},
		{ReasonTrustSourceMissing, 911,
			"A CA bundle that a setting names does not exist or is empty.",
			"Give the ConfigMap that is named its certificates, or remove its name from the setting. The " +
				"certificates that nodes trust because of it stay."},
		{ReasonProxyInvalid, 912,
			"The cluster's proxy setting is not valid.",
			"Correct the field of the Proxy cluster that is named, or of spec.proxy of the WindowsMachineConfig " +
				"where there is no OpenShift: http://host:port or https://host:port. Nodes keep the last valid one."},
		{ReasonKubeletConfigRefused, 913,
			"spec.kubelet.config of the WindowsMachineConfig is not valid, or sets a field that the operator " +
				"must set.",
			"Correct or remove the field that is named. Nodes keep the last configuration that was " +
				"accepted, or get the operator's own where this kubelet does not take that one either."},
		{ReasonSettingInvalid, 915,
			"A setting of the WindowsMachineConfig is not valid.",
			"Correct the field that is named. Until then its default is used."},
		{ReasonUserDataForeign, 917,
			"The secret windows-user-data belongs to somebody else, so the operator leaves it alone.",
			"Delete the secret, or remove its ownerReferences and its label app.kubernetes.io/managed-by. To use " +
				"user data of your own, give it another name and name that in the MachineSet."},
		{ReasonUserDataForbidden, 918, "The operator may not write the secret windows-user-data.",
			"Apply the operator's manifests again; for openshift-machine-api and openshift-cluster-api those are " +
				"config/machine-api and config/cluster-api: see docs/machines.md."},
		{ReasonHostKeySecretInvalid, 919,
			"The secret windows-ssh-host-key does not hold a valid host key.",
			"Delete the secret: the operator makes a new one. Until then new machines are trusted at first " +
				"contact."},
		{ReasonRolloutSettingInvalid, 920,
			"A field of spec.rollout of the WindowsMachineConfig is not valid.",
			"Correct the field that is named. Until then no node that is in service is disrupted."},
		{ReasonVXLANPortDefault, 921,
			"On vSphere, the default VXLAN port 4789 may be taken by its own overlay: pods of different " +
				"nodes don't reach " +
				"each other then.",
			"Choose another port, such as 9898, as hybridOverlayVXLANPort when the cluster is installed; it can't be " +
				"changed later. Nothing to do if pods of Windows nodes reach others."},
	}
}

// publishedExplanations are about what is published for nodes.
func publishedExplanations() []row {
	return []row{
		{ReasonDesiredStateTooLarge, 916,
			"What nodes need does not fit into a Secret.",
			"Have fewer CA certificates or mirror rules. Nodes keep what was published last."},
		{ReasonLatestNotPublished, 937,
			"The secret windows-services-latest can't be replaced: somebody's finalizer holds it, or the API server " +
				"refuses what it is to hold.",
			"Remove the finalizer that the message names, or change the policy or quota that it names. Until then " +
				"each daemon reads a new revision from its ConfigMap and Secret, which costs the API server two " +
				"requests more for each node."},
		{ReasonRevisionNotPublished, 938,
			"For a minute or longer something that nodes need could not be read or published: the API server refuses " +
				"it or does not answer, or somebody's finalizer holds an object.",
			"Nothing to do if it passes. Otherwise give back the right, change the policy or quota, or remove the " +
				"object or finalizer that the message names. Until then nodes keep what was published of it last, " +
				"and don't follow what was changed in it since."},
	}
}

// workloadExplanations are about what pods need.
func workloadExplanations() []row {
	return []row{
		{ReasonLinuxPodPlaced, 930,
			"A pod for Linux was placed on a Windows node: what made it tolerates the taint of Windows nodes and " +
				"does not select Linux, or names the node.",
			"Add the node selector kubernetes.io/os: linux to what makes the pod, which is mostly a DaemonSet that " +
				"tolerates everything."},
		{ReasonImageNotForNode, 931,
			"The image of a pod for Windows has nothing for the build of Windows Server that its node has.",
			"Use an image of that build, or have the pod placed on nodes of the image's build: by the RuntimeClass " +
				"of the build, such as windows2022."},
		{ReasonPodUnplaceable, 932,
			"A pod for Windows has been pending for ten minutes or more, and none of the Windows nodes can take it, " +
				"whatever becomes free there.",
			"Change what the message names: the node selector, RuntimeClass, tolerations or requests of what makes " +
				"the pod; or add a node that has what it requires."},
		{ReasonPodsNotRead, 933,
			"The pods on a Windows node, or those that are pending, could not be read to the end: the API server " +
				"does not answer, or there are so many or so large pods that it takes too long.",
			"The operator's log says what failed. Otherwise look for thousands of pods, or pods of a megabyte, with " +
				"kubectl get pods -A --field-selector spec.nodeName=<node>, and limit their namespace by a quota."},
		{ReasonAnotherOperator, 934,
			"The Windows nodes of this cluster belong to an operator in another namespace. This one does nothing, " +
				"and ends.",
			"Remove one of the two. To keep the other, delete the namespace of this one, and install the other " +
				"again as it was: both have the same ClusterRoles and policies, which this install may have taken " +
				"over. To move to this namespace, remove the hosts and then the other operator first. If that is " +
				"gone for good, with its hosts: kubectl patch winconf cluster --subresource=status --type=json " +
				"-p '[{\"op\":\"remove\",\"path\":\"/status/operator\"}]'."},
	}
}

// kindExplanations are about which kind of cluster it is.
func kindExplanations() []row {
	return []row{
		{ReasonSettingNotHere, 922,
			"A field of the WindowsMachineConfig sets what an object of OpenShift sets on this cluster.",
			"Remove the field that is named, and change the object that is named instead. The object is in force."},
		{ReasonBootstrapNotGranted, 923,
			"The ServiceAccount that hosts join with may not request certificates.",
			"Install the operator's manifests again: they make the ServiceAccount node-bootstrapper in its " +
				"namespace, and bind it to the ClusterRole system:node-bootstrapper."},
		{ReasonFlannelUnsupported, 929,
			"flannel is not configured so that Windows nodes can take part, or not installed.",
			"Correct net-conf.json in the ConfigMap kube-flannel/kube-flannel-cfg as the message says, and restart " +
				"flannel's pods on all nodes: docs/kubernetes.md has a configuration that works. Nodes that have " +
				"joined keep what was published last."},
		{ReasonSettingsMissing, 939,
			"The WindowsMachineConfig was deleted. The spec that was in force stays in force, and the object is " +
				"restored with it after a minute.",
			"Create the object again, or change it once it is restored. To return to a default, remove the field."},
		{ReasonNetworksOverlap, 936,
			"The networks of pods and of Services overlap.",
			"Have pods and Services use networks of their own. Correct podSubnet in the ConfigMap " +
				"kube-system/kubeadm-config where pods do not have these addresses; otherwise the cluster must be " +
				"made again with other networks."},
		{ReasonAPIServerInternal, 935,
			"The address of the API server for hosts is one that only pods and nodes reach: it is in the network of " +
				"Services or pods, or the name of a Service.",
			"Set spec.apiServer of the WindowsMachineConfig to the URL by which machines outside of the cluster " +
				"reach the API server, such as that of the control plane's load balancer."},
		{ReasonServicesNotGranted, 928,
			"kube-proxy on Windows nodes, which has kubelet's identity, may not read the endpoints of Services: pods " +
				"there don't reach them.",
			"Let the group system:nodes list and watch EndpointSlices: config/kubernetes/flannel does, and " +
				"OpenShift's own binding system:node-proxiers."},
	}
}
