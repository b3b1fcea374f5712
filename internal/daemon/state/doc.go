// Package state manages the state file. It records the desired state, what the daemon has changed on this host, and
// what was there before. The package also defines the daemon's directories, and who can access them.
//
// Verbs and the reconcile loop record each change before they make it. So every change is known even after a crash, and
// cleanup reverts exactly these changes. The package doesn't decide what to change.
package state
