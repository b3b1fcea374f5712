// Package fleet answers which simulated Windows hosts there are: each a machine of package sim
// behind an SSH server on an address of 127.0.0.0/8, with the stand-ins of what runs on a node and
// the real daemon's code as its programs.
//
// The lab's commands, the end-to-end tests and the benchmark start them; product code never imports
// it.
package fleet
