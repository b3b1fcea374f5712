// Package registry provides the registries that hosts of a test pull images from: real registries over TLS, at
// addresses of this machine's loopback network, with CAs that sign their certificates, and unique images.
//
// The end-to-end tests and the tests under Wine start them. The lab's commands and product code don't import this
// package.
package registry
