// Package sshd simulates the SSH server of a Windows Server: exec through cmd.exe or PowerShell, SFTP with Windows
// paths, and the faults of such hosts.
//
// The lab and the tests use it in front of any Machine: the simulated one, or a Windows prefix under Wine. It holds no
// state of the machine, offers no shell, terminal or forwarding, and is never part of the product.
package sshd
