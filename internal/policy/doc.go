// Package policy answers WHETHER we may act now: which certificate requests are approved, how many
// nodes may be disrupted, how long to wait after a failure.
//
// Controllers gather what a decision needs and hand it in; every decision is a pure function that
// gives its reason. Nothing here touches a client, the network or a clock.
package policy
