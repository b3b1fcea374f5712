// Command cri runs on a Windows host and sends the same request to containerd's pipe as kubelet: a pull of an image. So
// containerd pulls the image with its configuration for kubelet. The command is for tests on Wine hosts only.
package main
