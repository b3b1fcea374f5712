// Package diagnosis answers what state the fleet is in, and why a host, a node or a pod is not as it
// should be: from symptom to cause to fix. kubectl-windows asks it, with objects that it read. It is
// pure: no client, no clock.
package diagnosis
