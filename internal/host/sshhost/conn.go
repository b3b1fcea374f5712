package sshhost

import (
	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/windows-nodes/wmco/internal/host"
)

// conn is one connection and its operations.
type conn struct {
	*line
	hostKey string
	// announced are the host keys that the host announced.
	announced *announcement

	// files is the only SFTP session, opened on first use. single reports that the server allows only one
	// session, so the SFTP session ends before each command.
	files  *sftp.Client
	single bool
	// tidied reports that the RPC directory exists and is clean.
	tidied bool
	// uploaded is the name of the uploaded daemon. It is empty before Upload.
	uploaded string
	// patched reports that several connections uploaded the daemon in parts.
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

// HostKey implements host.Conn.
func (c *conn) HostKey() string { return c.hostKey }
