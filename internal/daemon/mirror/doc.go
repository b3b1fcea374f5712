// Package mirror makes containerd on this host pull images by the cluster's mirror rules, credentials and CAs. It runs
// the mirror resolver on the host's loopback address, and returns the file that directs containerd to the resolver. It
// also reports pulls to administrators: through events of the Node, and through counters that windows_exporter serves.
//
// The service runs one mirror. Bootstrap runs none, because no image is pulled before the Node exists. The resolver
// also serves without the API server. The package doesn't write containerd's files itself: the reconcile loop writes
// them and maintains them like all other files.
package mirror
