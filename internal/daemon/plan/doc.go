// Package plan answers what the desired state of this host is, and which steps, in which order, lead to it.
//
// The reconcile loop and bootstrap compute the steps before they change the host, and then execute them.
// Apart from reading facts of the host, its cloud and its Node, the package is pure. An unknown fact is a
// Problem to wait for, never an empty string. Answers of the cloud's metadata service aren't trusted: a value
// must be short and a valid name, or it is refused.
//
// The order of steps: restore rights that someone loosened; certificates and the environment; files (programs
// in use are moved aside, so that services keep running); stops, in reverse order of the starts; deletion of
// services that left the manifest; configurations and starts; deletion of everything else that left. So a
// service is down only for its own restart, and new objects exist before old ones are deleted.
package plan
