// Package clustertest makes the objects of an OpenShift cluster that the operator reads, for tests
// and for the lab.
//
// Its objects are valid by OpenShift's own definitions, so that a real API server takes them.
// Product code never imports it.
package clustertest
