package sshd

import (
	"time"

	"golang.org/x/crypto/ssh"
)

// Settings are what can be changed while the server runs. The zero value is a perfect host.
type Settings struct {
	// HostKey is shown to new connections. Another one is what a reinstalled host, or another
	// machine, would show. Never nil in a running server.
	HostKey ssh.Signer
	// FurtherHostKeys are shown to clients that know no type of key but theirs, and announced to
	// those that logged in. One of HostKey's type is not used. Nil makes an ECDSA key, which every
	// Windows host has; an empty slice is a host that has HostKey only.
	FurtherHostKeys []ssh.Signer
	// HostKeyTypes are the types of keys that are shown, as of a server with HostKeyAlgorithms. Those of other types
	// are announced and proven all the same, as OpenSSH does. Nil shows all.
	HostKeyTypes []string
	// Latency is the delay of every byte on its way, in each direction. It does not limit
	// throughput.
	Latency time.Duration
	// Bandwidth in bytes per second, for all connections together and for each direction by itself;
	// 0 is unlimited.
	Bandwidth int64
	// MaxSessions is how many sessions a connection may have at a time; 0 is OpenSSH's default.
	MaxSessions int
	// Faults are what goes wrong.
	Faults Faults
}

// Faults are the ways in which a host disappoints.
type Faults struct {
	// RefuseKeys refuses every key.
	RefuseKeys bool
	// Closed refuses TCP connections, as a host does whose sshd is stopped. Open connections stay.
	Closed bool
	// Hung accepts TCP connections and never says a word. Open connections stay.
	Hung bool
	// Frozen stops all bytes of all connections, without an end: a cable pulled, a virtual machine
	// paused.
	Frozen bool
	// HangExec lets no command come to its end.
	HangExec bool
	// HangFiles lets no SFTP session come to its end.
	HangFiles bool
	// HostKeys is what the host does about the further keys that it has.
	HostKeys HostKeysFault
	// Flood sends without end.
	Flood Flood
	// Drop cuts connections.
	Drop *Drop
	// Corrupt damages what is written through SFTP.
	Corrupt *Corrupt
}

// HostKeysFault is a way in which a host fails to say which host keys it has.
type HostKeysFault string

// Ways to fail.
const (
	// HostKeysSilent announces nothing, as servers do that are not OpenSSH, or older than 6.8.
	HostKeysSilent HostKeysFault = "silent"
	// HostKeysUnproven announces keys and refuses to prove them.
	HostKeysUnproven HostKeysFault = "unproven"
	// HostKeysForged proves keys with signatures by another key, as one does who announces somebody
	// else's.
	HostKeysForged HostKeysFault = "forged"
	// HostKeysGarbled announces bytes that are no keys.
	HostKeysGarbled HostKeysFault = "garbled"
)

// Flood is a place where a hostile host sends without end.
type Flood string

// Places to send without end.
const (
	// FloodListing never ends the listing of a directory.
	FloodListing Flood = "listing"
	// FloodFolders has a folder in every folder.
	FloodFolders Flood = "folders"
	// FloodOutput lets every command write to its output, and FloodErrors to its error output,
	// until it is ended.
	FloodOutput Flood = "output"
	FloodErrors Flood = "errors"
	// FloodRequests sends requests of SSH itself from the login on.
	FloodRequests Flood = "requests"
	// FloodSession sends an exit status that is none, and then requests, over every session from its
	// beginning on.
	FloodSession Flood = "session"
)

// Drop cuts a connection with a reset.
type Drop struct {
	// After is how many more bytes pass, both directions together, before a connection is cut.
	After int64
	// Random draws that number anew for each connection, evenly between 0 and twice After.
	Random bool
	// Times is how many connections are cut in all; 0 is no limit.
	Times int64
}

// Corrupt changes one byte of a file that is written through SFTP.
type Corrupt struct {
	// At is the byte's offset in the file. Shorter files are not touched.
	At int64
	// Times is how many bytes are changed in all; 0 is no limit.
	Times int64
}
