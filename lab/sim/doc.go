// Package sim simulates a Windows Server machine in process, behind the same interfaces that winos has for real
// Windows.
//
// A machine has a file system with Windows rules, a service manager that runs programs written in Go, a registry
// environment, a certificate store, features, a host name, a network and a power button. Knobs inject faults. The lab,
// the tests and the benchmark use it. Product code never imports it. It opens no socket and touches no file of the
// machine that it runs on.
package sim
