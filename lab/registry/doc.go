// Package registry answers where the hosts of a test pull images from: real registries over TLS, at
// addresses of this machine's loopback network, with CAs that sign their certificates, and
// images that nobody else has.
//
// The end-to-end tests and the tests under Wine start them; neither the lab's commands nor product
// code import it.
package registry
