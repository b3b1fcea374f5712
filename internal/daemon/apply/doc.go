// Package apply brings this host to its desired state and keeps it there: it observes the host, plans steps, and takes
// them.
//
// Bootstrap runs one pass. The daemon's service runs a pass whenever something has changed. Every step is idempotent
// and is recorded in the state file before it is taken, so the next pass completes an interrupted pass. The new version
// of a file is written next to the old one, verified, and then renamed, even while a running program has the old file
// open. The package sends no requests to the API server; it only checks whether a new CA verifies the API server. It
// has no schedule.
package apply
