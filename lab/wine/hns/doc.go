// Package hns answers what the host network service of Windows would, as far as nodes need it: a
// stand-in for Wine hosts, which have none.
//
// The keeper serves it on a pipe to computenetwork.dll and vmcompute.dll, which are ours, too: so
// the daemon's real code, and Microsoft's hcsshim below it, run against it unchanged. It keeps
// networks and endpoints and gives addresses; no packet is ever sent.
package hns
