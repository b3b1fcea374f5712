// Package plan computes the desired state of this host, and the steps that lead to it, in their order.
//
// The reconcile loop and bootstrap compute the steps before they change the host, and then execute them. Apart from
// reading facts of the host, its cloud and its Node, the package is pure. An unknown fact is a Problem to wait for,
// never an empty string. Answers of the cloud's metadata service aren't trusted: the package refuses a value that is
// too long or not a valid name.
//
// The order of steps: restore access rights; certificates and the environment; files (programs in use are moved aside,
// so that services keep running) and kubeconfigs; stops, in reverse order of the starts; deletion of services that left
// the manifest, and of a network with another name; configurations and starts; deletion of all other objects that left
// the manifest. So a service is down only for its own restart, and new objects exist before old ones are deleted.
package plan
