package sshd

import "sync/atomic"

// Counters contains numbers that a server counts. Counting begins at the start of the server or at the last reset.
type Counters struct {
	// Connections is the number of TCP connections that the server accepted. Authenticated is the number of successful
	// logins.
	Connections   int64 `json:"connections"`
	Authenticated int64 `json:"authenticated"`
	// Commands is the number of commands that ran.
	Commands int64 `json:"commands"`
	// PowerShellStarts is how many times PowerShell was started: as the default shell of a command, or because a
	// command contains its name.
	PowerShellStarts int64 `json:"powershellStarts"`
	SFTPSessions     int64 `json:"sftpSessions"`
	// BytesIn is the number of bytes that the host received. BytesOut is the number of bytes that it sent.
	BytesIn  int64 `json:"bytesIn"`
	BytesOut int64 `json:"bytesOut"`
	// OpenConnections is the number of connections that are open now. A reset doesn't change it.
	OpenConnections int64 `json:"openConnections"`
}

type counters struct {
	connections, authenticated, commands, powershell, sessions, in, out, open atomic.Int64
}

func (c *counters) read() Counters {
	return Counters{
		Connections:      c.connections.Load(),
		Authenticated:    c.authenticated.Load(),
		Commands:         c.commands.Load(),
		PowerShellStarts: c.powershell.Load(),
		SFTPSessions:     c.sessions.Load(),
		BytesIn:          c.in.Load(),
		BytesOut:         c.out.Load(),
		OpenConnections:  c.open.Load(),
	}
}

func (c *counters) reset() {
	for _, n := range []*atomic.Int64{&c.connections, &c.authenticated, &c.commands, &c.powershell, &c.sessions, &c.in,
		&c.out} {
		n.Store(0)
	}
}
