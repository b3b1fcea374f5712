// Package host answers HOW we touch a Windows machine from afar: the interface to one, and how
// reaching it fails.
//
// The journeys of internal/instance use it; sshhost implements it over SSH and SFTP. It never decides
// whether a machine should be touched.
package host

import (
	"context"
	"io"
	"net/netip"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Target is one machine and how to get in.
type Target struct {
	// Address is an IPv4 address or DNS name; Port the SSH port.
	Address string
	Port    int
	User    string
	// PrivateKey is PEM. It is never logged.
	PrivateKey []byte
	// HostKey is the expected or pinned key as "<type> <base64>"; empty accepts any and the caller
	// pins Conn.HostKey.
	HostKey string
}

// Dialer opens connections.
type Dialer interface {
	// Dial opens one connection, or answers with a *contract.Problem: AddressUnresolvable for a
	// name without an IPv4 address, otherwise a 2xx reason. It never retries.
	Dial(ctx context.Context, target Target) (Conn, error)
}

// Conn is one authenticated connection. Its methods may not be called concurrently, except Close.
type Conn interface {
	// HostKey is the key that the machine showed, as "<type> <base64>".
	HostKey() string
	// Upload makes sure that the daemon's binary lies in the RPC directory: it is sent only
	// when missing or of another size, under a temporary name, and renamed. It goes on where an
	// earlier connection broke. A repeated call sends nothing. It returns the bytes sent.
	Upload(ctx context.Context, daemon Blob) (sent int64, err error)
	// Send leaves content in the RPC directory under name, in one stream. It replaces what was
	// there. Content that is also an io.Closer is closed at the end, which ends whoever feeds it.
	Send(ctx context.Context, name string, content io.Reader) (sent int64, err error)
	// Call runs a verb of the uploaded daemon. request is marshalled to JSON; the answer is decoded
	// into answer, which is a pointer to a contract.Answer. A verb's own problem is in the answer;
	// an error says that there is no answer.
	Call(ctx context.Context, verb contract.Verb, request, answer any) error
	// RemoveUpload removes the RPC directory with everything in it. A repeated call finds nothing
	// to do.
	RemoveUpload(ctx context.Context) error
	// Err is nil while the connection is usable.
	Err() error
	Close() error
}

// Prover is a Conn whose machine can prove which further host keys it has. Not every implementation
// of Conn is one.
type Prover interface {
	// ProveHostKeys answers the host keys that the machine announced and proved to hold, as "<type>
	// <base64>", best first, and that it shows to who expects them. The one that it showed may be
	// among them. It is empty for a machine that announces none. A repeated call gives the same answer.
	ProveHostKeys(ctx context.Context) (keys []string, err error)
}

// Locator is a Conn that knows where it reached its machine. Not every implementation of Conn is one.
type Locator interface {
	// Address is the IP address at the other end; none (netip.Addr{}) of a network without such. A
	// repeated call gives the same answer.
	Address() netip.Addr
}

// Blob is payload that can be opened any number of times.
type Blob struct {
	contract.Blob
	Open func() (io.ReadCloser, error)
}
