// Package sshhost reaches a Windows machine over SSH and SFTP: it implements the calls of package host.
//
// The operator uses it for all its operations on a host. One connection carries one SFTP session and one
// command per call. A command is the uploaded daemon with a verb, in words that cmd.exe and PowerShell parse
// alike. The package never repeats a call, never runs a shell's own commands, never parses text for people to
// decide something, and never puts a key or a request's content into an error.
package sshhost
