// Package state answers what we did to this host and what was there before, where our directories
// lie and who may open them, and remembers the last desired state that was read.
//
// Verbs and the reconcile loop write each entry before they make the change, so that after a crash
// nothing of ours is unknown and cleanup is exact. It decides nothing, and never removes what
// others made.
package state
