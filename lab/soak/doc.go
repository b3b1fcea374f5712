// Package soak answers whether everything still holds, and nothing has leaked, after nodes, settings,
// operator and API server were disrupted for hours: it draws the disruptions from a seed, makes them,
// waits until all has converged, and compares what is counted with what was counted before.
//
// Command winlab and its own test run it; product code never imports it.
package soak
