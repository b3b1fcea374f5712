// Package conformance answers whether a Windows node pulls from where a Linux node of the same
// cluster does. It compares the rules of internal/mirror with sysregistriesv2, the library that
// CRI-O on Linux nodes uses, over generated objects and image names, and has containerd's own
// reader of hosts.toml read what is written for it. It is a module of its own, so that the product
// requires neither library. It has tests only.
package conformance
