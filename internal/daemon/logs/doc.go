// Package logs answers how logs on this host stay within their limits: the daemon's own, and those
// of the services that it manages.
//
// The service writes its log through a Writer and runs one Rotator. Programs that move a full log
// aside by themselves are left to that, and only what is too old or too many is removed; for the
// others the content is copied aside and the file emptied in place, because on Windows nobody can
// rename a file that a program holds open. The names of logs never change, and older files lie
// beside them, where kubelet's log endpoint finds both.
package logs
