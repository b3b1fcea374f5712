// Package program simulates the programs of a payload on a simulated Windows machine. There are stand-ins for kubelet,
// containerd, kube-proxy, the hybrid overlay and other programs. They accept and refuse the same flags and
// configuration files as the real programs, and send requests to a real API server.
//
// The lab passes these programs to sim.Options.Programs. They run no containers. Only kubelet and the exporter listen
// on a socket. There is no stand-in for the daemon, because the lab runs its real code.
package program
