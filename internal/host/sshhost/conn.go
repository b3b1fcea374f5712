package sshhost

import (
	"sync"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/host"
)

// conn is one connection and its operations.
//
//	dialled ──▶ usable ──▶ lost: by the peer, by silence, by a context that ended during an SFTP request, or by Close
//
// SFTP can't cancel a single request. So to give up a request, conn closes the connection, which ends all pending
// operations. Errors contain the first cause of the loss.
type conn struct {
	client           *ssh.Client
	wire             *wire
	address, hostKey string
	options          Options
	announcement     announcement

	// files is the only SFTP session, opened on first use. `single` reports that the server allows only one session, so
	// conn ends the SFTP session before each command.
	files  *sftp.Client
	single bool
	// tidied reports that the RPC directory exists and is clean.
	tidied bool
	// uploaded is the name of the uploaded daemon. It is empty before Upload.
	uploaded string
	// patched reports that the daemon was uploaded in parts, by several connections.
	patched bool

	work sync.WaitGroup
	gone chan struct{}

	mu    sync.Mutex
	cause error
}

var _ host.Conn = (*conn)(nil)

func (c *conn) watch() {
	client := c.client
	c.start(func() {
		err := client.Wait()
		if broken := c.wire.broken(); broken != nil {
			err = broken
		}
		c.lose(err)
	})
	c.start(c.keepAlive)
}

func (c *conn) HostKey() string { return c.hostKey }
