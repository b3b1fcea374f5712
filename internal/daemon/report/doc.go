// Package report writes the state of a node to one file that kubelet's log query serves: services, networks, routes,
// the state file, and the differences from the desired revision.
//
// The service writes the file periodically, and a verb prints it. The package changes only this file, starts no process
// and sends nothing. The report contains names but not the values that belong to them.
package report
