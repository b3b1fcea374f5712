// Package kubectlwindows implements the commands of kubectl-windows, for administrators of Windows nodes. It reads
// with the caller's rights, in few requests with limited time and size. The packages diagnosis and lint interpret
// the objects. It changes only objects that a user may change by hand, and never contacts a host.
package kubectlwindows
