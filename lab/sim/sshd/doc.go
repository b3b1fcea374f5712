// Package sshd answers what a Windows Server looks like from the network: its SSH server, with exec
// through cmd.exe or PowerShell, SFTP with Windows' paths, and the ways in which such a host
// disappoints.
//
// The lab and the tests put it in front of anything that is a Machine: the simulated one, or a
// Windows prefix under Wine. It holds no state of the machine itself, offers no shell, terminal or
// forwarding, and is never part of the product.
package sshd
