package contract

import "encoding/json"

// Names of the objects and identities of a host that joins by itself, without SSH. All objects are in the operator's
// namespace. The ID of the host follows each prefix. This ID is the UID of the WindowsInstance. Exception: the ID of a
// Machine's host is the digest of the host's first key.
const (
	// ServiceAttend is the service on the host that carries out the operator's calls.
	ServiceAttend = "windows-instance-attend"
	// JoinSecretPrefix begins the name of the Secret that contains the command for the host, under JoinCommandField.
	// The token in the command is bound to this Secret. JoinCredentialField has the token's ID, and JoinExpiresField
	// its expiry in RFC 3339.
	JoinSecretPrefix    = "windows-join-"
	JoinCommandField    = "command"
	JoinCredentialField = "credential"
	JoinExpiresField    = "expires"
	// CallSecretPrefix begins the name of the Secret that contains the current call. The operator writes
	// CallRequestField, a Call. The host writes CallHostField, a CallHost.
	CallSecretPrefix = "windows-call-"
	CallRequestField = "request"
	CallHostField    = "host"
	// HostUserPrefix, followed by the ID of the host, is the user name in the host's certificate. HostGroup is the
	// group of every such certificate.
	HostUserPrefix = "system:windows-host:"
	HostGroup      = "system:windows-hosts"
	// HostKeyType, followed by the digest of the host's first key, is status.hostKey of the WindowsInstance.
	HostKeyType = "x509 "
	// MachinesJoinSecret is the Secret that the tokens in the user data of Machines are bound to. JoinTokenField has
	// the newest token, and JoinCredentialField the IDs of all valid tokens, separated by spaces.
	MachinesJoinSecret = JoinSecretPrefix + "machines"
	JoinTokenField     = "token"
	PayloadService     = "windows-payload"
	// HostStateFile is the name of a file in the RPC directory. The file contains an Attendance.
	HostStateFile = "attend.json"
)

// Attendance tells a host that joins by itself how to reach the cluster. A command on the host passes the Attendance to
// the daemon's program, on standard input.
type Attendance struct {
	// APIServer is the URL of the API server, and CA the PEM bundle that verifies its certificate.
	APIServer string `json:"apiServer"`
	CA        string `json:"ca"`
	// Payload is a path at the API server. The blobs are at PayloadServerPath below this path.
	Payload string `json:"payload"`
	// Namespace is the operator's namespace.
	Namespace string `json:"namespace"`
	// UID is the UID of the WindowsInstance. It is empty in the user data of Machines: then the host identifies itself
	// by its key.
	UID string `json:"uid"`
	// Token authenticates the request for the host's certificate. A host can get one certificate with its token. The
	// token for Machines is valid for one certificate of each new Machine.
	Token string `json:"token,omitempty"`
}

// Call is a request of the operator to the host.
type Call struct {
	// ID is different for each call. The host carries out each call at least once, and repeats the ID in its answer.
	ID string `json:"id"`
	// Program is the daemon's program that carries out the verb. If it is missing, the host fetches it.
	Program Blob            `json:"program"`
	Verb    Verb            `json:"verb"`
	Request json.RawMessage `json:"request,omitempty"`
}

// CallHost is the host's report about its current or last call, with the answer.
type CallHost struct {
	// BootID identifies the boot of the host that reads the calls, as in HostFacts.
	BootID string `json:"bootID"`
	// Call is the ID of the call. It is empty if the host has never begun a call.
	Call string `json:"call,omitempty"`
	// Beat increases every CallBeatSeconds while the host carries out the call.
	Beat int64 `json:"beat,omitempty"`
	// Answer is the verb's answer, an Answer. If the program gave no answer, Fault says why. If both are empty, the
	// call isn't over yet.
	Answer json.RawMessage `json:"answer,omitempty"`
	Fault  string          `json:"fault,omitempty"`
}

// Answered reports whether the host has carried out the call with this ID.
func (h CallHost) Answered(call string) bool {
	return h.Call == call && (len(h.Answer) > 0 || h.Fault != "")
}

// CallBeatSeconds is the time between two beats of a host that carries out a call. A shorter call has no beat.
const CallBeatSeconds = 10
