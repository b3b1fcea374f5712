// Package report writes the state of a node to one file: services, networks, routes, the state file, and the
// differences from the desired revision. kubelet's log query can read this file.
//
// The daemon writes the file periodically, and a command prints a report. The package changes only this file. It starts
// no process and sends nothing. The report contains names of variables and files, but no values or contents.
package report
