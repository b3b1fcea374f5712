package contract

// Names of the Windows services that we manage.
const (
	ServiceContainerd     = "containerd"
	ServiceKubelet        = "kubelet"
	ServiceExporter       = "windows_exporter"
	ServiceHybridOverlay  = "hybrid-overlay-node"
	ServiceFlannel        = "flanneld"
	ServiceCSIProxy       = "csi-proxy"
	ServiceKubeProxy      = "kube-proxy"
	ServiceCloudNode      = "cloud-node-manager"
	ServiceDaemon         = "windows-instance-config-daemon"
	ServiceGuard          = "windows-instance-config-guard"
	ServiceCleanup        = "windows-instance-config-cleanup"
	ManagedDescription    = "OpenShift managed"
	HybridOverlayNetwork  = "OVNKubernetesHybridOverlayNetwork"
	SourceVIPEndpointName = "VIPEndpoint"
)
