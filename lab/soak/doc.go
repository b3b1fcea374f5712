// Package soak tests that a cluster still converges after hours of disruptions, and that nothing leaks. It disrupts
// nodes, settings, the operator and the API server.
//
// It draws the disruptions from a seed, makes them, waits until the cluster has converged, and compares the cluster's
// figures with the figures before the disruptions. Command winlab and the package's own test run it. Product code
// never imports it.
package soak
