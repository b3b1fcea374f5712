// Package report answers what state a node is in, in one file that kubelet's log query serves: its
// services, networks, routes, the state file, and what is not as the desired revision says.
//
// The service writes it now and then, and a verb prints it. It only looks: it changes nothing but its
// own file, starts no process, sends nothing, and names things without the values that belong to them.
package report
