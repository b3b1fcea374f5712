// Package sshhost reaches a Windows machine over SSH and SFTP: it answers how the calls of package
// host travel on a wire.
//
// The operator uses it for everything that it does on a host itself. One connection carries one
// SFTP session and one command per call; a command is the uploaded daemon with a verb, in words that
// cmd.exe and PowerShell read alike. It repeats no call, never runs a shell's own commands, never
// reads text meant for people to decide something, and never puts a key or a request's content into
// an error.
package sshhost
