// Package openshift makes a plain cluster look like OpenShift to the operator: it installs the real CRDs of the
// OpenShift API, and the objects that the operator reads.
//
// The lab and the tests install it into a local control plane. It simulates only the parts of OpenShift that hosts
// need for a join: the network plugin's subnets and the right to bootstrap. Product code never imports it.
package openshift
