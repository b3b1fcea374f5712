// Package kubectlwindows answers what administrators ask of Windows nodes at a terminal: the
// commands of kubectl-windows. It reads with the rights of who calls it, in few requests that are
// bounded in time and bytes; what it read means is for diagnosis and lint to say. It changes only
// what a user may change by hand, and never contacts a host.
package kubectlwindows
