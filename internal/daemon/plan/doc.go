// Package plan computes the desired state of this host, and the ordered list of steps that lead to it.
//
// The reconcile loop and bootstrap compute all steps before they change the host, and then execute them. HostFacts
// reads the host and its cloud, and creates kube-proxy's endpoint. Apart from that, the package is pure. An unknown
// fact results in a Problem, never in an empty string. The package doesn't trust the answers of the cloud's metadata
// service: it refuses a value that is too long or not a valid name.
//
// The order of the steps:
//   - restore access rights
//   - add certificates, and change the environment
//   - write files and kubeconfigs; a program in use is moved aside, so that its service keeps running
//   - stop services, in the reverse order of their starts
//   - delete services that are no longer in the manifest, and networks of other revisions
//   - configure services and start them
//   - delete all other objects that are no longer in the manifest
//
// So a service is down only for its own restart, and new objects exist before old ones are deleted.
package plan
