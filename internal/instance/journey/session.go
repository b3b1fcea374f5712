package journey

import (
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/instance/credential"
)

// Session is the work on one host under one connection. It lives in memory only; one worker at a time
// has it.
type Session struct {
	Conn host.Conn
	Key  credential.Key
	// SharedKey is the host key that hosts which are made from user data have in common, if any.
	SharedKey string
	Found     *contract.PreflightAnswer
	Token     string // kubelet's first credential, whose id is in the saved status
	Request   []byte // the daemon's certificate request
	CSR       string // name of the CertificateSigningRequest made of it
	// FailingSince is since when calls of the API server fail; zero, or before the present phase, while they don't.
	FailingSince time.Time
	// IsGranted says that the host may be disrupted: its node has a place in the rollout budget, or needs none.
	IsGranted bool
	Drained   bool
	// IsStopNoted says that the status says that the daemon is stopped, and that this session has yet to do so.
	IsStopNoted bool
	Cleaned     bool
	// RebootAdvised says that the cleaned host keeps something in use until its next boot.
	RebootAdvised bool
}

// Connected says whether the connection is there and usable.
func (s *Session) Connected() bool { return s.Conn != nil && s.Conn.Err() == nil }

// HasReplacedKey reports whether the daemon waits for the certificate of a key that this session had made.
func (s *Session) HasReplacedKey() bool { return s.Connected() && s.Request != nil }

// End closes the connection and forgets what was learned over it.
func (s *Session) End() {
	if s.Conn != nil {
		_ = s.Conn.Close() // the session is over either way, and the peer may be gone
	}
	*s = Session{}
}
