// Package resolver answers where, on this node, an image's bytes come from: it is a pull-only
// registry on the node's loopback that containerd asks for every image, and that fetches from the
// mirrors and sources which the cluster's rules name, in their order.
//
// hosts.toml can only say things about a whole registry host; rules are about repositories, digests
// and tags, and need the cluster's pull secret. So hosts.toml sends containerd here, containerd
// passes the registry that the user named as ?ns=, and this package decides, fetches, checks and
// reports:
//
//	request ── target ── line of sources ── attempt ── attempt … ── bytes, checked against their digest
//	                     (rules, pull kind, (auth, redirects,        (a source that dies on the way is
//	                      dead and lying     timeouts)                replaced by the next, from the same byte)
//	                      sources last)
//
// The daemon is its only user. It never pushes, never listens beyond loopback, never answers
// without the node's token, never passes wrong bytes off as complete, never sends a credential to a
// host that it is not for, and keeps nothing on disk.
package resolver
