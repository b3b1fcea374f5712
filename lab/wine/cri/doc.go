// Command cri asks containerd on a Windows host, over its pipe, for what kubelet asks it: to pull
// an image, with all that its configuration for kubelet says. It runs on Wine hosts only, for
// tests.
package main
