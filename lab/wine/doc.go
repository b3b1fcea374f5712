// Package wine runs Windows programs on a Linux machine with Wine. A host is a Wine prefix with a service manager,
// a registry, a certificate store and processes, behind the same SSH server as the simulated hosts.
//
// The commands of the lab and the tests in test/wine use it. A host is a copy of a template that is created once per
// machine. If the kernel allows namespaces, a host has its own computer name, network and process table. The package
// starts no containers.
//
//	template ──Clone──▶ prefix ──boot──▶ on ──PowerOff, Reboot──▶ off
//
// docs/testing.md lists the differences between Wine and Windows.
package wine
