// Package apply brings this host to its desired state and keeps it there: it observes, plans, and takes the steps.
//
// Bootstrap makes one pass. The service makes a pass whenever something has changed. Every step is idempotent and is
// recorded in the state file before it is taken, so the next pass completes an interrupted one. A new file is written
// next to the old one, verified and renamed, even while a running program has the old one open. The package doesn't
// talk to the API server and has no schedule.
package apply
