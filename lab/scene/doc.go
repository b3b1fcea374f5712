// Package scene answers how everything comes together: a control plane that looks like OpenShift,
// simulated Windows hosts, and the real operator as a process of its own with the rights that we
// ship.
//
// The demo, the end-to-end tests and the benchmark each start one. Product code never imports it.
package scene
