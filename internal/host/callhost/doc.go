// Package callhost reaches a host that joins by itself. It implements host.Conn with a Secret instead of an SSH
// session. Each host has its own Secret. The operator writes one call at a time into the Secret. The host watches the
// Secret, carries out the call, and writes the answer into the Secret.
//
//	operator ── Call ──▶ Secret windows-call-<UID> ──▶ host (windows-instance-attend)
//	operator ◀── CallHost ── Secret ◀── host
package callhost
