// Package kubectlwindows implements the commands of kubectl-windows, for administrators of Windows nodes. It reads
// objects with the caller's rights, and sends few requests with limited time and size. The packages diagnosis and lint
// interpret the objects. The plugin changes only objects that a user may change by hand, and never connects to a host.
package kubectlwindows
