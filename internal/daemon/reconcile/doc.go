// Package reconcile answers when the daemon acts: it watches its own Node, reads the desired state
// that the Node names, has the host brought to it or back to what held before, and reports on the
// Node what holds.
//
// The service runs it for as long as the host is a node. While nothing changes it sends nothing:
// one watch stands open, and every few seconds it looks at its services and files. Without the API
// server it goes on with the last desired state that it read. It also answers whether kubelet still
// needs its bootstrap credential, which it deletes once it is not needed.
package reconcile
