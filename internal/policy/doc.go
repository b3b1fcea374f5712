// Package policy decides whether the operator may act now: which certificate requests it approves, how many nodes it
// may disrupt, and how long it waits after a failure.
//
// Controllers pass in everything that a decision needs. Every decision is a pure function that returns its reason. The
// package uses no client, no network and no clock.
package policy
