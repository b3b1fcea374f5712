// Package callhost reaches a host that joins by itself. It implements host.Conn with a Secret of the host instead of an
// SSH session: the operator writes one call at a time into the Secret, and the host, which watches it, writes the
// answer.
//
//	operator ── Call ──▶ Secret windows-call-<UID> ──▶ host (windows-instance-attend)
//	operator ◀── CallHost ── Secret ◀── host
package callhost
