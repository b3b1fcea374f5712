// Package fleet runs the simulated Windows hosts of a lab. Each host is a machine of package sim behind an SSH server
// at an address in 127.0.0.0/8. The host runs the real code of the daemon. All other programs of a node are stand-ins.
package fleet
