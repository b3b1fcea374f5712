// Package mirror decides where a node pulls an image from: it lists the registries in their order, and the credentials
// for each of them. It implements the rules of ImageDigestMirrorSet, ImageTagMirrorSet and the older
// ImageContentSourcePolicy as on Linux nodes. The operator uses the package to check and merge these objects. The
// daemon uses it to resolve each pull and to write containerd's hosts.toml. The package is pure: it never opens a file
// or a connection, and its errors and texts never contain a secret.
package mirror
