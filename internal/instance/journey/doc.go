// Package journey contains the common parts of a host's journeys: the outcome of a step, the session of an attempt,
// join slots, claims on node names, the operator's marks on Nodes, drains, and differences between revisions.
//
// The packages join, disrupt, remove and health use package journey. They change an instance's status in memory, and
// the instance controller saves it. Each step checks the current state, does one bounded action, and returns an
// Outcome: done, waiting, or failed with a reason. No step sleeps, and each step can be killed and repeated. State that
// must outlive the operator is in the status. This package doesn't decide about the rollout budget or certificates.
package journey
