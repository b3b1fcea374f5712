package sshd

import (
	"time"

	"golang.org/x/crypto/ssh"
)

// Settings can be changed while the server is running. The zero value is a host without faults.
type Settings struct {
	// HostKey is presented to new connections. A different key imitates a reinstalled host, or another machine. It is
	// never nil in a running server.
	HostKey ssh.Signer
	// FurtherHostKeys are presented to clients that accept only their key types, and announced after the login. A key
	// of the same type as HostKey is ignored. If nil, the server creates an ECDSA key, which every Windows host has. An
	// empty slice means that the host has only HostKey.
	FurtherHostKeys []ssh.Signer
	// HostKeyTypes are the key types that the server presents, like HostKeyAlgorithms of sshd. Keys of other types are
	// still announced and proven, like in OpenSSH. Nil presents all types.
	HostKeyTypes []string
	// Latency is the delay of every byte in each direction. It doesn't limit throughput.
	Latency time.Duration
	// Bandwidth is the limit in bytes per second for all connections together, separately for each direction. 0 is
	// unlimited.
	Bandwidth int64
	// MaxSessions is the maximum number of concurrent sessions per connection. Default: the default of OpenSSH.
	MaxSessions int
	// Faults are the injected faults.
	Faults Faults
}

// Faults are the faults of a host.
type Faults struct {
	// RefuseKeys refuses every key.
	RefuseKeys bool
	// Closed refuses TCP connections, like a host whose sshd is stopped. Open connections stay.
	Closed bool
	// Hung accepts TCP connections and never sends anything. Open connections stay.
	Hung bool
	// Frozen stops all traffic of all connections without closing them, like an unplugged cable or a paused virtual
	// machine.
	Frozen bool
	// HangExec makes every command hang.
	HangExec bool
	// HangFiles makes every SFTP session hang at its end.
	HangFiles bool
	// HostKeys is the fault in the announcement of further host keys.
	HostKeys HostKeysFault
	// Flood makes the host send endless data.
	Flood Flood
	// Drop cuts connections.
	Drop *Drop
	// Corrupt damages data that is written through SFTP.
	Corrupt *Corrupt
}

// HostKeysFault is a fault in the announcement of host keys.
type HostKeysFault string

// Faults in the announcement of host keys.
const (
	// HostKeysSilent announces nothing, like servers other than OpenSSH and OpenSSH before 6.8.
	HostKeysSilent HostKeysFault = "silent"
	// HostKeysUnproven announces keys and refuses to prove them.
	HostKeysUnproven HostKeysFault = "unproven"
	// HostKeysForged proves keys with signatures of another key, like an attacker who announces foreign keys.
	HostKeysForged HostKeysFault = "forged"
	// HostKeysGarbled announces bytes that aren't keys.
	HostKeysGarbled HostKeysFault = "garbled"
)

// Flood selects where a hostile host sends endless data.
type Flood string

// Places to send endless data.
const (
	// FloodListing sends an infinite directory listing.
	FloodListing Flood = "listing"
	// FloodFolders presents a folder in every folder.
	FloodFolders Flood = "folders"
	// FloodOutput makes every command write endless output, and FloodErrors endless error output, until the command is
	// ended.
	FloodOutput Flood = "output"
	FloodErrors Flood = "errors"
	// FloodRequests sends endless SSH requests after the login.
	FloodRequests Flood = "requests"
	// FloodSession sends an invalid exit status and then endless requests over every session.
	FloodSession Flood = "session"
)

// Drop cuts a connection with a reset.
type Drop struct {
	// After is the number of bytes, in both directions together, before a connection is cut.
	After int64
	// Random replaces After with a random number for each connection, uniformly between 0 and twice After.
	Random bool
	// Times is the total number of connections to cut. Default: unlimited.
	Times int64
}

// Corrupt changes one byte of a file that is written through SFTP.
type Corrupt struct {
	// At is the offset of the byte in the file. Shorter files aren't changed.
	At int64
	// Times is the total number of bytes to change. Default: unlimited.
	Times int64
}
