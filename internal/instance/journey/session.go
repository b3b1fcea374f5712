package journey

import (
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/instance/credential"
)

// Session is the work on one host over one connection. It lives in memory only, and one worker at a time has it.
type Session struct {
	Conn host.Conn
	Key  credential.Key
	// SharedKey is the host key that hosts from the same user data share, if any.
	SharedKey string
	Found     *contract.PreflightAnswer
	Token     string // kubelet's first credential, whose id is in the saved status
	Request   []byte // the daemon's certificate request
	CSR       string // name of the CertificateSigningRequest made of it
	// FailingSince is since when calls of the API server fail. It is zero, or before the present phase, if they
	// succeed.
	FailingSince time.Time
	// IsGranted says that the host may be disrupted: its node has a place in the rollout budget, or needs none.
	IsGranted bool
	Drained   bool
	// IsStopNoted says that the status reports the daemon as stopped, and this session has yet to stop it.
	IsStopNoted bool
	Cleaned     bool
	// RebootAdvised says that something on the cleaned host stays in use until the next boot.
	RebootAdvised bool
}

// Connected reports whether the connection is usable.
func (s *Session) Connected() bool { return s.Conn != nil && s.Conn.Err() == nil }

// HasReplacedKey reports whether the daemon waits for the certificate of a key that this session requested.
func (s *Session) HasReplacedKey() bool { return s.Connected() && s.Request != nil }

// End closes the connection and forgets what was learned over it.
func (s *Session) End() {
	if s.Conn != nil {
		_ = s.Conn.Close() // the session is over either way, and the peer may be gone
	}
	*s = Session{}
}
