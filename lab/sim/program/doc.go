// Package program simulates the programs of a payload on a simulated Windows machine. The stand-ins for kubelet,
// containerd, kube-proxy, the hybrid overlay and others accept and refuse the same flags and configuration files as the
// real programs, and talk to a real API server.
//
// The lab passes them to sim.Options.Programs. They run no containers. Only kubelet and the exporter listen on a
// socket. The daemon isn't simulated.
package program
