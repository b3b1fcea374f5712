// Package payload manages the payload's blobs on this host. It finds out which blobs are missing, and fetches them
// while the node runs pods: the blobs of the next revision in advance, and missing blobs of the current revision.
//
// The daemon's service runs the Stager in its own goroutine, so that the reconcile loop never waits for it. Blobs are
// in C:\k\store, each named by its SHA-256. A blob with the right name and size counts as present. Its content is
// verified when it is written and whenever it is used. Complete blobs are kept, so a restarted daemon continues with
// the next one. The package writes files only to the store, and changes only annotations of the Node.
package payload
