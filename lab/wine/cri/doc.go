// Command cri sends a request of kubelet to containerd on a Windows host through its pipe: it pulls an image with
// containerd's configuration for kubelet. It is for tests on Wine hosts only.
package main
