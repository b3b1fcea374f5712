// Package reconcile decides when the daemon acts. It watches the daemon's own Node, and reads the revision that the
// Node's annotation names. Then it applies this revision, or rolls back to the previous one, and reports the result on
// the Node.
//
// The daemon's service runs a Reconciler as long as the host is a node. While nothing changes, the Reconciler sends no
// requests. It keeps two watches open, and checks the host's services and files every few seconds. If the API server is
// unreachable, the Reconciler continues with the last revision that it read. It also deletes kubelet's bootstrap
// credential as soon as kubelet has its own certificate.
package reconcile
