// Package sshd simulates the SSH server of a Windows Server. It can run commands through cmd.exe or PowerShell, serves
// SFTP with Windows paths, and simulates the faults of such hosts.
//
// The lab and the tests use the server for any Machine: a simulated machine, or a Windows prefix in Wine. The server
// stores no state of the machine. It offers no interactive shell, no terminal and no forwarding. It is never part of
// the product.
package sshd
