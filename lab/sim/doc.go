// Package sim answers what one Windows Server machine would do: a simulated one, in process, behind
// the same interfaces that real Windows has in winos.
//
// A machine has a file system with Windows rules, a service manager that runs programs written in
// Go, a registry environment, a certificate store, features, a host name, a network and a power
// button; knobs make it fail. The lab, the tests and the benchmark use it. Product code never
// imports it, and it opens no socket and touches no file of the machine that it runs on.
package sim
