// Package journey has what the journeys of a host share: the outcome of a step, the SSH session of an attempt, join
// slots, claims on node names, the operator's marks on Nodes, drains, and the difference between revisions.
//
// The packages join, disrupt, remove and health use it, and the instance controller saves what they write into the
// status. Each step looks first, does one bounded thing, and returns an Outcome: done, waiting, or failed with a
// reason. No step sleeps, and each may be killed and repeated. State that must outlive the operator is in the status.
// Nothing here decides about the rollout budget or approves a certificate.
package journey
