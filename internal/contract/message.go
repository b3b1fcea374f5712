package contract

import "time"

// Verb is a command of the daemon's binary that the operator calls.
//
// A call doesn't use the remote shell's standard streams, because cmd.exe and PowerShell treat them differently. The
// operator writes <RPCDir>/<id>.req.json over SFTP, runs "<RPCDir>\<daemon> <verb> --rpc <id>", and reads
// <RPCDir>/<id>.ans.json. The daemon deletes the request as soon as it has read it, because a request may contain
// short-lived credentials.
type Verb string

// Verbs of the daemon.
const (
	VerbPreflight Verb = "preflight" // return facts, problems, missing blobs; changes nothing
	VerbPrepare   Verb = "prepare"   // set the host name, enable Windows features; may reboot the host
	VerbReceive   Verb = "receive"   // unpack, verify and store the payload stream, or fetch it without SSH
	VerbBootstrap Verb = "bootstrap" // write files, start bootstrap services, create the daemon's key
	VerbHandover  Verb = "handover"  // store the daemon's certificate, install and start the daemon
	VerbCleanup   Verb = "cleanup"   // remove everything that the daemon created, restore previous values
)

// Answer is the envelope of every verb's answer.
type Answer[T any] struct {
	// Problem is set if the verb failed. Even then, Result may be set, at least in part.
	Problem *Problem `json:"problem,omitempty"`
	Result  T        `json:"result"`
}

// Blob is one piece of payload.
type Blob struct {
	Digest string `json:"sha256"`
	Size   int64  `json:"size"`
}

// PreflightRequest describes how the host will be configured.
type PreflightRequest struct {
	// Hostname is the wanted host name. If it is empty, the host keeps its own name.
	Hostname string `json:"hostname,omitempty"`
	// Time is the time of the operator's clock. The daemon uses it to detect that the host's clock is wrong.
	Time time.Time `json:"time"`
	// Blobs is the whole payload. The answer lists the missing blobs.
	Blobs []Blob `json:"blobs"`
	// Daemon is the SHA-256 of the uploaded binary. The daemon compares it with the SHA-256 of its own exe.
	Daemon string `json:"daemon"`
	// NodeName is the fact that becomes the name of the Node. If NodeName is empty, FactHostname becomes the name.
	NodeName Fact `json:"nodeName,omitempty"`
	// VXLANPort is the port of the hybrid network, or 0 for the default.
	VXLANPort uint16 `json:"vxlanPort,omitempty"`
	// NodeIP is the wanted address of the Node. If it is empty, the Node gets the address of the interface with the
	// default route. If the host lacks the wanted address, the answer has a problem.
	NodeIP string `json:"nodeIP,omitempty"`
	// APIServer is the URL that the host must use for the API server. CA is the bundle that verifies its certificate.
	// If the host uses a proxy, both are empty, and the daemon doesn't check whether it can reach the API server.
	APIServer string `json:"apiServer,omitempty"`
	CA        []byte `json:"ca,omitempty"`
	// ExternalNetwork means that other software provides the network. containerd then runs programs in
	// DirExternalCNI, so ordinary users must not be able to write there.
	ExternalNetwork bool `json:"externalNetwork,omitempty"`
}

// PreflightAnswer contains the daemon's findings.
type PreflightAnswer struct {
	Facts HostFacts `json:"facts"`
	// Problems prevent the host from becoming a node until they are fixed.
	Problems []Problem `json:"problems,omitempty"`
	Missing  []Blob    `json:"missing,omitempty"`
	// NeedsPrepare lists in words what VerbPrepare would change. An empty list means nothing.
	NeedsPrepare []string `json:"needsPrepare,omitempty"`
	// Joined reports that the daemon's service is installed. Running reports that this service is running.
	Joined  bool `json:"joined,omitempty"`
	Running bool `json:"running,omitempty"`
}

// HostFacts describe a Windows host.
type HostFacts struct {
	Hostname    string    `json:"hostname"`  // lower case, without a DNS suffix
	MachineID   string    `json:"machineID"` // MachineGuid of the registry
	BootID      string    `json:"bootID"`
	ProductName string    `json:"productName"`
	Build       int       `json:"build"` // 17763, 20348, 26100
	UBR         int       `json:"ubr"`
	Time        time.Time `json:"time"`
	DiskFree    int64     `json:"diskFree"` // bytes on the system drive
	Memory      int64     `json:"memory"`   // bytes
	NodeIP      string    `json:"nodeIP"`
	// NodeName is the name that the Node has or will have: the value of the fact in PreflightRequest.NodeName.
	NodeName string `json:"nodeName,omitempty"`
}

// PrepareRequest contains the wanted host name.
type PrepareRequest struct {
	Hostname string `json:"hostname,omitempty"`
	// NodeName is the fact that becomes the name of Nodes on this platform.
	NodeName Fact `json:"nodeName,omitempty"`
}

// PrepareAnswer reports whether the host reboots.
type PrepareAnswer struct {
	Rebooting bool   `json:"rebooting"`
	BootID    string `json:"bootID"` // of the boot during this call
}

// ReceiveRequest names the uploaded stream in the RPC directory: a tar in zstd. Each entry in the tar has its digest as
// name. If the host joins by itself, there is no stream: the daemon fetches the blobs as its Attendance says.
type ReceiveRequest struct {
	Stream string `json:"stream,omitempty"`
	Blobs  []Blob `json:"blobs"`
}

// ReceiveAnswer lists the stored and the missing blobs.
type ReceiveAnswer struct {
	Stored  []string `json:"stored"`
	Missing []Blob   `json:"missing,omitempty"`
}

// BootstrapRequest contains the data that containerd and kubelet need to start.
type BootstrapRequest struct {
	NodeName string   `json:"nodeName"`
	Revision string   `json:"revision"`
	Manifest Manifest `json:"manifest"`
	// Confidential is the manifest's confidential part, as in the published Secret (see ParseConfidential), or empty.
	Confidential []byte `json:"confidential,omitempty"`
	// NodeIP is the value of FactNodeIP on this host from now on. If NodeIP is empty, the value is the address of the
	// interface with the default route. The daemon stores NodeIP in its state file.
	NodeIP string `json:"nodeIP,omitempty"`
	// BootstrapKubeconfig is kubelet's first, short-lived credential. The daemon deletes it once kubelet has its own.
	BootstrapKubeconfig []byte `json:"bootstrapKubeconfig"`
	// Register means that no Node with this name exists. kubelet registers its Node only when it starts. So the daemon
	// restarts a running kubelet, unless this call has just started it.
	Register bool `json:"register,omitempty"`
	// ExternalNetwork has the same meaning as in PreflightRequest.
	ExternalNetwork bool `json:"externalNetwork,omitempty"`
}

// BootstrapAnswer contains the daemon's certificate request. The key never leaves the host; repeated calls reuse it.
type BootstrapAnswer struct {
	NodeName  string `json:"nodeName"`
	DaemonCSR []byte `json:"daemonCSR"` // PEM, CN system:wicd-node:<node>, O system:wicd-nodes
	// ClearedKeys reports that the daemon deleted kubelet keys that another operator had left, because users other than
	// Administrators could write them.
	ClearedKeys bool `json:"clearedKeys,omitempty"`
}

// HandoverRequest contains the daemon's certificate, its node name, and the API server.
type HandoverRequest struct {
	NodeName    string `json:"nodeName"`
	Certificate []byte `json:"certificate"` // PEM, for the key that the host created
	APIServer   string `json:"apiServer"`   // URL
	CA          []byte `json:"ca"`          // PEM bundle of the API server
	Namespace   string `json:"namespace"`   // namespace of the services manifests
}

// HandoverAnswer confirms that the daemon's service is running.
type HandoverAnswer struct{}

// CleanupRequest asks the daemon to remove everything that it installed. Its fields identify the host, so that another
// host with the same SSH host key, such as a copy of its disk, stays unchanged. Empty fields are not compared.
type CleanupRequest struct {
	NodeName string `json:"nodeName,omitempty"`
	// MachineID is the MachineGuid of the installation of Windows that became the node.
	MachineID string `json:"machineID,omitempty"`
}

// CleanupAnswer lists what cleanup removed, what it could not remove, and what it kept on purpose.
type CleanupAnswer struct {
	Removed []string  `json:"removed"`
	Left    []Problem `json:"left,omitempty"`
	// Kept lists what stays on the host, in words or as a path: other users' files in C:\k; data that is in use,
	// protected or below a user's directory; and, if the state file was lost, objects of unknown owners.
	Kept []string `json:"kept,omitempty"`
	// RebootAdvised reports that something disappears only at the next boot, such as a file in use.
	RebootAdvised bool `json:"rebootAdvised,omitempty"`
}
