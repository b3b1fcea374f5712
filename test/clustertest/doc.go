// Package clustertest creates the objects of an OpenShift cluster that the operator reads. Tests and the lab use it.
//
// Its objects are valid by OpenShift's own definitions, so that a real API server accepts them. Product code never
// imports this package.
package clustertest
