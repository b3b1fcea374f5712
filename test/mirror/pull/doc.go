// Package pull tests the node's resolver together with two other programs. One is containerd's own resolver and
// fetcher, which read the daemon's hosts.toml. The other is a real registry (distribution v3). The registries have
// users or a token server, and certificates of the cluster's own CA. The tests pull real images. Some mirrors are down,
// slow, locked or send wrong content, and some are removed during a pull.
//
// It is a separate module, because the product must not link these dependencies. No package imports it.
package pull
