package sshd

import (
	"time"

	"golang.org/x/crypto/ssh"
)

// Settings can be changed while the server is running. With the zero value, the host has no faults.
type Settings struct {
	// HostKey is the host key for new connections. A different key simulates a reinstalled host, or a different
	// machine. In a running server, HostKey is never nil.
	HostKey ssh.Signer
	// FurtherHostKeys are host keys of other types. The server uses such a key if a client accepts only this type, and
	// announces the key after the login. A key of the same type as HostKey is ignored. If FurtherHostKeys is nil, the
	// server creates an ECDSA key, because every Windows host has one. An empty slice means that HostKey is the only
	// key.
	FurtherHostKeys []ssh.Signer
	// HostKeyTypes are the types of the host keys that the server uses for connections, like HostKeyAlgorithms in
	// sshd_config. The server announces and proves all keys, as OpenSSH does. If HostKeyTypes is nil, the server uses
	// all types.
	HostKeyTypes []string
	// Latency is the delay of every byte in each direction. It doesn't limit throughput.
	Latency time.Duration
	// Bandwidth is the maximum number of bytes per second for all connections together. Each direction has its own
	// limit. 0 means no limit.
	Bandwidth int64
	// MaxSessions is how many sessions a connection may have at the same time. Default: the default of OpenSSH.
	MaxSessions int
	// Faults are the faults of the host.
	Faults Faults
}

// Faults are the faults of a host.
type Faults struct {
	// RefuseKeys makes the server refuse all keys of clients.
	RefuseKeys bool
	// Closed makes the host refuse TCP connections, as if sshd were stopped. Open connections remain open.
	Closed bool
	// Hung makes the host accept TCP connections but never send anything. Open connections remain open.
	Hung bool
	// Frozen stops all traffic without closing connections, as if a cable were unplugged or a virtual machine were
	// paused.
	Frozen bool
	// HangExec makes every command hang.
	HangExec bool
	// HangFiles makes every SFTP session hang when it ends.
	HangFiles bool
	// HostKeys is a fault in the announcement of host keys.
	HostKeys HostKeysFault
	// Flood makes the host send data without end.
	Flood Flood
	// Drop makes the network cut connections.
	Drop *Drop
	// Corrupt makes the host store different data than a client writes through SFTP.
	Corrupt *Corrupt
}

// HostKeysFault is a fault in the announcement of host keys.
type HostKeysFault string

// Faults in the announcement of host keys.
const (
	// HostKeysSilent makes the server announce no keys, like OpenSSH before 6.8 and servers other than OpenSSH.
	HostKeysSilent HostKeysFault = "silent"
	// HostKeysUnproven makes the server announce keys but refuse to prove them.
	HostKeysUnproven HostKeysFault = "unproven"
	// HostKeysForged makes the server prove keys with signatures by a different key, like an attacker who announces
	// keys of other hosts.
	HostKeysForged HostKeysFault = "forged"
	// HostKeysGarbled makes the server announce bytes that aren't keys.
	HostKeysGarbled HostKeysFault = "garbled"
)

// Flood is the kind of data that a hostile host sends without end.
type Flood string

// Kinds of data that a host sends without end.
const (
	// FloodListing makes every listing of a directory endless.
	FloodListing Flood = "listing"
	// FloodFolders makes every folder contain a folder.
	FloodFolders Flood = "folders"
	// FloodOutput makes every command write to its standard output until the command is killed. FloodErrors does the
	// same with standard error.
	FloodOutput Flood = "output"
	FloodErrors Flood = "errors"
	// FloodRequests makes the server send SSH requests without end after the login.
	FloodRequests Flood = "requests"
	// FloodSession makes the server send an invalid exit status in every session, and then requests without end.
	FloodSession Flood = "session"
)

// Drop cuts a connection with a reset.
type Drop struct {
	// After is how many bytes a connection transfers before it is cut, in both directions together.
	After int64
	// Random replaces After by a random number for each connection. The numbers are uniformly distributed from 0 to
	// twice After.
	Random bool
	// Times is how many connections are cut in total. Default: no limit.
	Times int64
}

// Corrupt changes one byte of each file that a client writes through SFTP.
type Corrupt struct {
	// At is the offset of the byte in the file. Files that are too short aren't changed.
	At int64
	// Times is how many bytes are changed in total. Default: no limit.
	Times int64
}
