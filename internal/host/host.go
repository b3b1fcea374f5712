// Package host defines the operator's interface to Windows machines, and errors for unreachable machines.
//
// internal/instance uses this package. Package sshhost implements the interface over SSH and SFTP, and package callhost
// without SSH. Package host never decides whether a machine should be changed.
package host

import (
	"context"
	"io"
	"net/netip"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Target is one machine and the credentials for it.
type Target struct {
	// Address is an IPv4 address or DNS name. Port is the SSH port.
	Address string
	Port    int
	User    string
	// PrivateKey is PEM. It is never logged.
	PrivateKey []byte
	// HostKey is the host key that the machine must have, as "<type> <base64>". If it is empty, Dial accepts any key.
	// Then the caller must store the result of Conn.HostKey, and require this key from then on.
	HostKey string
}

// Dialer opens connections.
type Dialer interface {
	// Dial opens one connection. Its error is a *contract.Problem. If the name has no IPv4 address, the reason is
	// AddressUnresolvable. For other errors, the code of the reason is from W200 to W299. Dial never retries.
	Dial(ctx context.Context, target Target) (Conn, error)
}

// Conn is one authenticated connection. Only Close may be called while another method runs.
type Conn interface {
	// HostKey returns the host key of this connection, as "<type> <base64>".
	HostKey() string
	// ProveHostKeys returns host keys of the machine as "<type> <base64>", best first. The machine has announced these
	// keys, has proved that it owns them, and shows them to clients that expect them. The key of this connection may
	// be among them. The result is empty if the machine announces none. A repeated call returns the same result.
	ProveHostKeys(ctx context.Context) (keys []string, err error)
	// Address returns the remote IP address, or netip.Addr{} on a network without IP addresses. It never changes.
	Address() netip.Addr
	// Upload ensures that the daemon's binary is in the RPC directory. If the binary is missing or has another size,
	// Upload sends it under a temporary name and renames it. If an earlier connection broke during the upload, Upload
	// sends only the rest. A repeated call sends nothing. Upload returns the number of bytes sent.
	Upload(ctx context.Context, daemon Blob) (sent int64, err error)
	// Send writes content to a file in the RPC directory, in one stream, and replaces an existing file. If
	// content is an io.Closer, Send closes it at the end, which stops the content's producer.
	Send(ctx context.Context, name string, content io.Reader) (sent int64, err error)
	// Call runs a verb of the uploaded daemon. The request and the answer are JSON. An error means that there is
	// no answer. Use the function Call, which decodes the answer.
	Call(ctx context.Context, verb contract.Verb, request []byte) (answer []byte, err error)
	// RemoveUpload removes the RPC directory and its content. A repeated call does nothing.
	RemoveUpload(ctx context.Context) error
	// Err returns nil while the connection is usable.
	Err() error
	Close() error
}

// Blob is a file of the payload. Each call of Open returns a new reader of its content.
type Blob struct {
	contract.Blob
	Open func() (io.ReadCloser, error)
}

// CallTimeout returns the time limit for a verb. Verbs that copy hundreds of megabytes through a virus
// scanner or enable a Windows feature take minutes on a slow disk. Verbs that only read take seconds.
func CallTimeout(verb contract.Verb) time.Duration {
	switch verb {
	case contract.VerbPreflight:
		return 2 * time.Minute
	case contract.VerbPrepare:
		return 20 * time.Minute
	case contract.VerbHandover:
		return 5 * time.Minute
	case contract.VerbReceive, contract.VerbBootstrap, contract.VerbCleanup:
		return 15 * time.Minute
	}
	return 5 * time.Minute
}
