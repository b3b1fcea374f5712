package contract

import "encoding/json"

// Names of the objects and identities of a host that joins by itself, without SSH. All objects are in the operator's
// namespace, and end with the ID of the host: the UID of the WindowsInstance, or, for a host of a Machine, the
// digest of its first key.
const (
	// ServiceAttend is the service on such a host that carries out the operator's calls.
	ServiceAttend = "windows-instance-attend"
	// JoinSecretPrefix names the Secret with the command for the host, under JoinCommandField. The token in the command
	// is bound to this Secret. JoinCredentialField has the token's id, JoinExpiresField its expiry in RFC 3339, and
	// JoinKeyField the digest of the public key that got a certificate with the token.
	JoinSecretPrefix    = "windows-join-"
	JoinCommandField    = "command"
	JoinCredentialField = "credential"
	JoinExpiresField    = "expires"
	JoinKeyField        = "key"
	// CallSecretPrefix names the Secret that carries one call at a time. The operator writes CallRequestField, a Call.
	// The host writes CallHostField, a CallHost.
	CallSecretPrefix = "windows-call-"
	CallRequestField = "request"
	CallHostField    = "host"
	// HostUserPrefix, followed by the ID of the host, is the user name in the host's certificate. HostGroup is the
	// group of every such certificate.
	HostUserPrefix = "system:windows-host:"
	HostGroup      = "system:windows-hosts"
	// HostKeyType, followed by the ID of the host, is the value of status.hostKey of the WindowsInstance.
	HostKeyType = "x509 "
	// MachinesJoinSecret is the Secret that the tokens in the user data of Machines are bound to. JoinTokenField has
	// the newest token, and JoinCredentialField the ids of all valid tokens, separated by spaces.
	MachinesJoinSecret = JoinSecretPrefix + "machines"
	JoinTokenField     = "token"
	// PayloadService is the Service of the payload server.
	PayloadService = "windows-payload"
	// HostStateFile is the name in the RPC directory of the file with an Attendance.
	HostStateFile = "attend.json"
)

// Attendance is how a host that joins by itself reaches the cluster. The command on the host passes it to the daemon's
// program over standard input.
type Attendance struct {
	// APIServer is the URL of the API server, and CA the PEM bundle that verifies its certificate.
	APIServer string `json:"apiServer"`
	CA        string `json:"ca"`
	// Payload is the path at the API server below which PayloadServerPath serves blobs.
	Payload string `json:"payload"`
	// Namespace of the operator.
	Namespace string `json:"namespace"`
	// UID of the WindowsInstance. It is empty in the user data of Machines: then the host identifies itself by its key.
	UID string `json:"uid"`
	// Token authenticates the request for the host's certificate. With it, a host can get one certificate. The token
	// for Machines is valid for one certificate of each new Machine.
	Token string `json:"token,omitempty"`
}

// Call is a request of the operator to the host.
type Call struct {
	// ID is different for each call. The host carries out each call at least once, and answers it with its ID.
	ID string `json:"id"`
	// Program is the daemon's program that carries out the verb. The host fetches it if it is missing.
	Program Blob `json:"program"`
	// Verb to run.
	Verb Verb `json:"verb"`
	// Request of the verb.
	Request json.RawMessage `json:"request,omitempty"`
}

// CallHost is what the host reports: which call it carries out or has carried out last, and the answer.
type CallHost struct {
	// BootID is the boot in which the host reads calls, as in HostFacts.
	BootID string `json:"bootID"`
	// Call is the ID of the call, or empty if the host has never begun one.
	Call string `json:"call,omitempty"`
	// Beat grows every CallBeatSeconds while the host carries out the call.
	Beat int64 `json:"beat,omitempty"`
	// Answer of the verb, an Answer. If the program gave none, Fault says why. Without both, the call isn't over yet.
	Answer json.RawMessage `json:"answer,omitempty"`
	Fault  string          `json:"fault,omitempty"`
}

// Answered reports whether the host has carried out the call with this ID.
func (h CallHost) Answered(call string) bool {
	return h.Call == call && (len(h.Answer) > 0 || h.Fault != "")
}

// CallBeatSeconds is the time between two beats of a host that carries out a call. A shorter call has no beat.
const CallBeatSeconds = 10
