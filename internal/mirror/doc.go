// Package mirror decides which registries a node pulls an image from, their order, and the credentials for each. It
// implements the rules of ImageDigestMirrorSet, ImageTagMirrorSet and the older ImageContentSourcePolicy as on
// Linux nodes. The operator uses it to check and merge these objects. The daemon uses it to resolve each pull and
// to write containerd's hosts.toml. The package is pure: it never opens a file or a connection, and its errors and
// texts never contain a secret.
package mirror
