package payload

const (
	// MaxSkew is how many minor versions a kubelet may be older than its API server. It may never be
	// newer. https://kubernetes.io/releases/version-skew-policy/#kubelet
	MaxSkew = 3
	// OpenShiftOffset is by how much the minor version of Kubernetes is above that of OpenShift 4.
	OpenShiftOffset = 13
)
