// Package openshift answers what makes a plain cluster look like OpenShift to the operator: the
// real CRDs of the OpenShift API, and the objects in them that the operator reads.
//
// The lab and the tests install it into a local control plane. It plays the parts of OpenShift that
// hosts meet when they join (the network plugin's subnets, the right to bootstrap) and no other;
// product code never imports it.
package openshift
