// Package mirror answers where an image comes from: which registries a node asks, in which order
// and with which credentials. The rules are those of ImageDigestMirrorSet and ImageTagMirrorSet,
// and of ImageContentSourcePolicy before them, with the meaning that they have on Linux nodes. The
// operator uses it to check and merge what users wrote, the daemon to resolve each pull and to
// write containerd's hosts.toml. It is pure: it never opens a file or a connection, and no error or
// text of it has a secret.
package mirror
