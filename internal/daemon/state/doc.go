// Package state answers three questions. What has the daemon changed on this host, and what was there before? Where
// are the daemon's directories? Which users can access them? It also stores the last desired state.
//
// Verbs and the reconcile loop write each entry before they make the change. So after a crash every change is
// known, and cleanup is exact. The package makes no decisions and never removes other programs' objects.
package state
