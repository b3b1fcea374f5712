// Package resolver is a pull-only registry on the node's loopback address. It decides where an image's bytes come from.
// containerd asks the resolver for every image. The resolver fetches the image from the mirrors and sources that the
// cluster's rules name, in their order.
//
// hosts.toml can only configure a whole registry host. The cluster's rules are about repositories, digests and tags,
// and need the cluster's pull secret. So hosts.toml sends containerd to the resolver. containerd passes the registry of
// the image name as the query parameter ns. A request takes four steps:
//
//	target ──► sources ──► attempt ──► copy
//	what is    who has it,  one request bytes, hashed, to containerd;
//	asked for  in order     to a source another source continues at the same byte
//
// Each step is in the file with its name. Exception: the step sources is in source.go. pull.go runs the steps. For
// manifests and for HEAD, whole.go replaces copy.go. The daemon is the only user. The package never pushes, never
// listens beyond loopback, never answers a request without the node's token or a pod's handle (see podAccess), never
// lets wrong bytes look complete, sends a credential only to the host that it is meant for, and keeps nothing on disk.
package resolver
