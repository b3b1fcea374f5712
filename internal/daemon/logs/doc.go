// Package logs keeps the logs on this host within their limits: the daemon's own log, and the logs of the services that
// it manages.
//
// The daemon writes its log through a Writer and runs one Rotator. If a program rotates its log itself, the Rotator
// only removes files that are too old or too many. For other programs, the Rotator copies the content of the log to
// another file and then empties the log, because on Windows an open file can't be renamed. The names of logs never
// change. Older files are in the same directory, so kubelet's log endpoint finds both.
package logs
