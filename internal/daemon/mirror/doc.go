// Package mirror answers how containerd on this host gets the images that the cluster's rules,
// credentials and CAs are about: through the mirror resolver, which it runs on the host's
// loopback, and by the files that send containerd there; and how administrators hear of what the
// resolver went through: by events of the Node, and by counters that windows_exporter serves.
//
// The service has one; bootstrap has none, because nothing is pulled before there is a Node. It
// goes on serving while the API server is away. It writes no file of containerd's itself: the
// reconcile loop does, so that they are kept like all others.
package mirror
