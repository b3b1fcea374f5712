// Package wine answers how a Windows program is run for real on a Linux machine: hosts made of a
// Wine prefix, with a service manager, a registry, a certificate store and processes, behind the
// same SSH server as the simulated hosts.
//
// The lab's commands and the tests in test/wine use it. A host is a copy of a template that is made
// once per machine; where the kernel lets us, it has namespaces of its own, and with them a
// computer name, a network and a process table. It decides nothing and starts no container.
//
//	template ──Clone──▶ prefix ──boot──▶ on ──PowerOff, Reboot──▶ off
//
// What Wine lacks or does otherwise than Windows is listed in docs/testing.md.
package wine
