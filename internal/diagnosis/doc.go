// Package diagnosis summarizes the state of the fleet. It also explains why a host, a node or a pod is not in its
// desired state: it leads from the symptom to the cause and to the fix. kubectl-windows reads the objects and calls
// this package with them. The package itself sends no requests and reads no clock.
package diagnosis
