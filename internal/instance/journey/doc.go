// Package journey contains the common parts of a host's journeys: the outcome of a step, the session of an attempt,
// join slots, claims on node names, the operator's marks on Nodes, drains, and differences between revisions.
//
// The packages join, disrupt, remove and health use package journey. They change an instance's status in memory, and
// the instance controller saves it. Each step checks the current state, does one bounded action, and returns an
// Outcome: done, waiting, or failed with a reason. No step sleeps. Each step can be killed and repeated. State that a
// restarted operator needs is in the status.
package journey
