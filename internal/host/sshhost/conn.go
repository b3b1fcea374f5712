package sshhost

import (
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/host"
)

// conn is one connection, and what is done over it.
type conn struct {
	*line
	hostKey string
	// announced are the host keys that the host says it has.
	announced *announcement

	// files is the one SFTP session, opened at the first need. single says that the server allows
	// no other session beside it, so that it ends before each command.
	files  *sftp.Client
	single bool
	// tidied says that the RPC directory is there and in order.
	tidied bool
	// uploaded is the name of the uploaded daemon; empty before Upload.
	uploaded string
	// patched says that it was sent in parts, by more than one connection.
	patched bool
}

var (
	_ host.Conn    = (*conn)(nil)
	_ host.Prover  = (*conn)(nil)
	_ host.Locator = (*conn)(nil)
)

func newConn(client *ssh.Client, announced *announcement, w *wire, address, hostKey string, o Options) *conn {
	return &conn{line: newLine(client, w, address, o), announced: announced, hostKey: hostKey}
}

// HostKey is host.Conn.
func (c *conn) HostKey() string { return c.hostKey }
