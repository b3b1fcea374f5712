// Package journey answers what the journeys of a host have in common: the outcome of a step, the SSH
// session of one attempt, join slots, claims on node names, what the operator writes on Nodes, drains,
// and what a revision changes.
//
// The packages join, upgrade, reboot, remove and health are made of it, and the instance controller
// saves what they put into the status. Each step looks first, does one bounded thing, and returns an
// Outcome: done, wait, or failed with a reason. No step sleeps, and each may be killed and begun anew.
// What must outlive the operator is in the instance's status. Nothing here decides the rollout budget
// or approves a certificate.
package journey
