// Package pull tests the node's resolver together with the programs that use it and that it uses: containerd's own
// resolver and fetcher, which read the daemon's hosts.toml, and real registries (distribution v3, with users and with a
// token server, each with a certificate of the cluster's own CA). The tests pull real images. Some mirrors are down,
// slow, locked or send wrong content, and some are removed during a pull.
//
// It is a separate module, because the product must not link its dependencies. No package imports it.
package pull
