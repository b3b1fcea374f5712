// Package selfupdate answers who goes back when a new daemon does not come up.
//
// A daemon whose program is about to be replaced installs the program of the revision that held
// last, mostly its own, as a service of another name: the rollback watchdog. It watches the new
// daemon from outside: when that is down for long, or shows no sign of life in time, the watchdog
// puts its own program in place, notes in the state file which revision failed, and starts the
// service. It survives crashes, hangs and reboots. The daemon that is in charge in the end stops
// it. It talks to no API server, and nobody else may go back from outside.
package selfupdate
