// Package apply answers how this host is brought to, and held at, what it must be: it looks, plans,
// and takes the steps.
//
// Bootstrap makes one pass with it; the service makes one whenever something changed. Every step
// may be repeated, and is written into the state file before it is taken, so a pass that dies
// anywhere is finished by the next. Files are written beside what is there, verified and renamed,
// also while a running program has them open. It talks to no API server and has no schedule.
package apply
