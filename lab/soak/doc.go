// Package soak tests that a cluster still converges after hours of disruptions, and that nothing leaks. It disrupts
// nodes, settings, the operator and the API server.
//
// It draws the disruptions from a seed, makes them, waits until the cluster has converged, and compares its figures
// with the figures from before. Command winlab and the package's own test run it. Product code never imports it.
package soak
