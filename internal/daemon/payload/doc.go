// Package payload answers which blobs of the payload lie on this host, and how those that it lacks
// come while the node serves: what the Node's next revision needs, and what the present one turns
// out to lack.
//
// The service runs the Stager beside the reconcile loop, which it never keeps waiting. Blobs lie
// under C:\k\store, each named by its SHA-256: a name is trusted for what to send, content is
// verified when it is written and whenever it is used. What arrived whole stays, so a daemon that
// is killed goes on with the next blob. It touches nothing that runs.
package payload
