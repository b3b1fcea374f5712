package journey

import (
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/instance/credential"
)

// Session is the work on one host over one connection. It is only in memory, and only one worker at a time uses it.
type Session struct {
	Conn host.Conn
	Key  credential.Key
	// SharedKey is the host key that hosts from the same user data share, if any.
	SharedKey string
	Found     *contract.PreflightAnswer
	// Token is kubelet's first credential. The host gets the token only after the saved status contains the token's ID.
	Token   credential.Token
	Request []byte // the daemon's certificate request
	CSR     string // the name of its CertificateSigningRequest
	// FailingSince is when calls of the API server began to fail. A time before the current phase means nothing.
	FailingSince time.Time
	// IsGranted reports that the host may be disrupted: its node has a slot in the rollout budget, or needs none.
	IsGranted bool
	Drained   bool
	Cleaned   bool
	// RebootTime is when the join requested a reboot that is not verified yet. End keeps this time. If the operator
	// restarts, the time is lost, and the host counts as unreachable until the reboot is over.
	RebootTime   time.Time
	RebootedBoot string
	// RebootAdvised reports that the cleaned host needs a reboot, because some objects remain in use until then.
	RebootAdvised bool
}

// Connected reports whether the connection is usable.
func (s *Session) Connected() bool { return s.Conn != nil && s.Conn.Err() == nil }

// HasReplacedKey reports whether the daemon has a new key, and this session requests its certificate.
func (s *Session) HasReplacedKey() bool { return s.Connected() && s.Request != nil }

// End closes the connection and drops all data about the host, except a requested reboot.
func (s *Session) End() {
	if s.Conn != nil {
		_ = s.Conn.Close() // the session ends in any case, and the peer may be gone
	}
	*s = Session{RebootTime: s.RebootTime, RebootedBoot: s.RebootedBoot}
}
