package sshd

import "sync/atomic"

// Counters are the counts of a server since its start or the last reset.
type Counters struct {
	// Connections is the number of accepted TCP connections, and Authenticated the number of logins.
	Connections   int64 `json:"connections"`
	Authenticated int64 `json:"authenticated"`
	// Commands is the number of exec requests that ran.
	Commands int64 `json:"commands"`
	// PowerShellStarts is the number of starts of PowerShell: as the default shell of a command, or because a command
	// names it.
	PowerShellStarts int64 `json:"powershellStarts"`
	SFTPSessions     int64 `json:"sftpSessions"`
	// BytesIn and BytesOut are bytes on the wire, from the perspective of the host.
	BytesIn  int64 `json:"bytesIn"`
	BytesOut int64 `json:"bytesOut"`
	// OpenConnections is the number of open connections. A reset doesn't change it.
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
