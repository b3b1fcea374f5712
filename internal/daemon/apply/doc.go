// Package apply brings this host to its desired state and keeps it there: it observes, plans steps, and takes them.
//
// The command bootstrap runs one pass. The daemon's service runs a pass whenever something has changed. Every step is
// idempotent and is recorded in the state file before it is taken, so the next pass completes an interrupted pass. A
// new file is written next to the old one, verified and renamed, even while a running program has the old file open.
// The package has no schedule. It contacts the API server only to check a new CA.
package apply
