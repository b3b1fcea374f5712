// Package sshhost reaches a Windows machine over SSH and SFTP: it implements the interfaces of package host.
//
// The operator uses the package for all operations on a host with an SSH server. A connection has one SFTP session, and
// runs one command for each call. A command starts the uploaded daemon with a verb. cmd.exe and PowerShell parse the
// command in the same way. The package never repeats a call, and never runs a shell's own commands. Its decisions never
// depend on text that is meant for people. Its errors never contain a key or a request's content.
package sshhost
