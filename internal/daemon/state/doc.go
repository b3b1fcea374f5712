// Package state manages the state file. It records the desired state, the daemon's changes on this host, and the
// previous settings. The package also defines the daemon's directories and the rights on them.
//
// The daemon's commands and the reconcile loop record each change before they make it. So every change is known even
// after a crash, and cleanup reverts exactly these changes. The package doesn't decide what to change.
package state
