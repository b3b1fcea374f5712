package lifecycle

import (
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

// Visit is the work on one host under one connection. It lives in memory only; one worker at a time
// has it.
type Visit struct {
	conn host.Conn
	key  Key
	// shared is the host key that the host was made with and has in common with others, if any.
	shared  string
	found   *contract.PreflightAnswer
	token   string // kubelet's first credential, whose id is in the saved status
	request []byte // the daemon's certificate request
	csr     string // name of the CertificateSigningRequest made of it
	drained bool
	cleaned bool
}

// Connected says whether the connection is there and usable.
func (v *Visit) Connected() bool { return v.conn != nil && v.conn.Err() == nil }

// HasReplacedKey reports whether the daemon waits for the certificate of a key that this visit had made.
func (v *Visit) HasReplacedKey() bool { return v.Connected() && v.request != nil }

// End closes the connection and forgets what was learned over it.
func (v *Visit) End() {
	if v.conn != nil {
		_ = v.conn.Close() // the visit is over either way, and the peer may be gone
	}
	*v = Visit{}
}
