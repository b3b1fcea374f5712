// Package conformance tests whether a Windows node pulls from the same registries as a Linux node of the same cluster.
// It compares the rules of internal/mirror with sysregistriesv2, the library of CRI-O on Linux nodes, over generated
// objects and image names. It also parses the daemon's hosts.toml with containerd's own code. It is a separate module,
// so that the product doesn't depend on these libraries. It contains only tests.
package conformance
