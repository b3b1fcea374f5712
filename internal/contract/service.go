package contract

import "strings"

// Names of the managed Windows services, of the overlay's HNS network, and of the endpoint with the source address. The
// services' descriptions begin with ManagedDescription.
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
	ServiceCleanup        = "windows-instance-config-cleanup"
	ManagedDescription    = "OpenShift managed"
	HybridOverlayNetwork  = "OVNKubernetesHybridOverlayNetwork"
	SourceVIPEndpointName = "VIPEndpoint"
)

// LogFile returns the path of a service's (newest) log file. Users' log collectors expect these paths.
func LogFile(service string) string {
	switch service {
	case ServiceDaemon:
		return PathDaemonLog
	case ServiceHybridOverlay:
		service = "hybrid-overlay"
	}
	return DirLog + `\` + service + `\` + service + `.log`
}

// LoggingServices returns the services that have a log, the daemon first. Each of them logs to its LogFile.
func LoggingServices() []string {
	return []string{ServiceDaemon, ServiceKubelet, ServiceContainerd, ServiceKubeProxy, ServiceHybridOverlay,
		ServiceFlannel, ServiceExporter, ServiceCSIProxy, ServiceCloudNode}
}

// IsManaged reports whether a service's description marks it as managed by the daemon.
func IsManaged(description string) bool { return strings.HasPrefix(description, ManagedDescription) }
