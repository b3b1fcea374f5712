// Package mirror decides where an image is pulled from: which registries a node tries, in which order and with which
// credentials. It implements the rules of ImageDigestMirrorSet, ImageTagMirrorSet and the older
// ImageContentSourcePolicy as on Linux nodes. The operator uses it to check and merge these objects. The daemon uses it
// to resolve each pull and to write containerd's hosts.toml. The package is pure: it never opens a file or a
// connection, and none of its errors or texts contains a secret.
package mirror
