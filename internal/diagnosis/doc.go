// Package diagnosis summarizes the state of the fleet, and explains why a host, a node or a pod is not in its
// desired state: from symptom to cause to fix. kubectl-windows calls it with objects that it has read. The package
// is pure: no client, no clock.
package diagnosis
