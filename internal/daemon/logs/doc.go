// Package logs keeps the logs on this host within their limits: the daemon's own log, and the logs of the services that
// it manages.
//
// The service writes its log through a Writer and runs one Rotator. If a program rotates its log itself, the Rotator
// only removes files that are too old or too many. For other programs, the Rotator copies the content to another file
// and empties the log in place, because on Windows a file can't be renamed while a program has it open. The names of
// logs never change, and older files are in the same directory, where kubelet's log endpoint finds both.
package logs
