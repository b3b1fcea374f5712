// Package reconcile decides when the daemon acts. It watches the daemon's own Node, reads the desired state that the
// Node names, applies this state to the host or rolls back to the previous one, and reports the result on the Node.
//
// The service runs it as long as the host is a node. While nothing changes, the package sends nothing: it keeps one
// watch open, and checks the host's services and files every few seconds. Without the API server it continues with the
// last desired state that it read. It also decides whether kubelet still needs its bootstrap credential, and deletes
// the credential as soon as kubelet no longer needs it.
package reconcile
