// Package fleet runs the simulated Windows hosts of a lab. Each host is a machine of package sim behind an SSH
// server on an address of 127.0.0.0/8. Its programs are stand-ins for a node's programs, and the daemon's real
// code.
//
// The lab's commands, the end-to-end tests and the benchmark start them. Product code never imports this package.
package fleet
