// Package scene runs the complete system: a control plane that looks like OpenShift, simulated Windows hosts, and the
// real operator as a separate process with the RBAC rights of the manifests.
//
// The demo, the end-to-end tests and the benchmark start scenes. Product code never imports it.
package scene
