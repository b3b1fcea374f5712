// Package program answers what the programs of a payload do on a simulated Windows machine:
// stand-ins for kubelet, containerd, kube-proxy, the hybrid overlay and the others, which take the
// flags and configuration files that the real ones take, refuse what those refuse, and speak to a
// real API server where those do.
//
// The lab gives them to sim.Options.Programs. They run no container, and none but the exporter,
// which has a key to show, opens a socket to listen on; the daemon is none of them.
package program
