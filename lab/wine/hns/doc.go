// Package hns simulates the parts of the Windows host network service that nodes need, for Wine hosts, which have none.
//
// The keeper serves it on a pipe to computenetwork.dll and vmcompute.dll from lab/wine/native. Therefore, the real code
// of the daemon and Microsoft's hcsshim run unchanged. The package stores networks and endpoints and assigns addresses.
// It never sends packets.
package hns
