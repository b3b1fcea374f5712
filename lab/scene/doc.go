// Package scene runs the complete system: a control plane, simulated Windows hosts, and the real operator. The control
// plane looks like OpenShift. The operator is a separate process that has only the RBAC rights in the manifests.
package scene
