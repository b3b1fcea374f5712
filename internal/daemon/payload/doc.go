// Package payload manages the payload's blobs on this host: it finds the missing ones and fetches them while the node
// serves. It fetches the blobs of the Node's next revision, and missing blobs of the current one.
//
// The service runs the Stager in its own goroutine, so that the reconcile loop never waits for it. Blobs are in
// C:\k\store, each named by its SHA-256. The name decides which blobs are missing. The content is verified when it is
// written and whenever it is used. Complete blobs stay, so a restarted daemon continues with the next one. The package
// writes files only to the store; the Stager also annotates the Node.
package payload
