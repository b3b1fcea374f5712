// Package pull holds the node's resolver against what it must get along with: containerd's own
// resolver and fetcher, which read our hosts.toml, and real registries (distribution v3, with users
// and with a token server, each with a certificate of the cluster's own CA). Real images go
// from the ones to the other, with mirrors that are down, slow, lying, locked, or taken away in the
// middle.
//
// It is a separate module, because the product must not link its dependencies. No package imports it.
package pull
