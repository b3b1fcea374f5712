package payload

import (
	"github.com/windows-nodes/wmco/internal/contract"
)

// Part is a binary of a complete payload.
type Part struct {
	// Name is the file name of the binary. It is unique, even if upper and lower case are not distinguished.
	Name string
	// Path is the path of the binary on a node.
	Path string
	// Feature is the feature that does not work without this part.
	Feature Feature
	// Required means that no host can become a node without this part.
	Required bool
	// Platform is the only infrastructure platform that uses this part. If it is empty, all platforms use this part.
	Platform contract.Platform
	// Skewed means that the version of this part must fit the version of the API server. A payload may contain several
	// versions of such a part.
	Skewed bool
}

// MaxSkew is how many minor versions a kubelet may be older than its API server. A kubelet must never be newer:
// https://kubernetes.io/releases/version-skew-policy/#kubelet.
const MaxSkew = 3

// Feature is something that a node can't do without certain parts. The text appears in summaries and conditions.
type Feature string

// Features of nodes.
const (
	FeatureNode            Feature = "joining as a node"
	FeatureRuntime         Feature = "running containers"
	FeaturePodNetwork      Feature = "pod network"
	FeatureFlannel         Feature = "pod network with flannel"
	FeatureServiceNetwork  Feature = "service network"
	FeatureMetrics         Feature = "node metrics"
	FeatureStorage         Feature = "CSI storage"
	FeatureCloudNode       Feature = "cloud node manager on Azure"
	FeatureImageCredential Feature = "image pulls from Amazon ECR"
)

// Names of the parts.
const (
	NameDaemon           = "windows-instance-config-daemon.exe"
	NameKubelet          = "kubelet.exe"
	NameKubeLogRunner    = "kube-log-runner.exe"
	NameContainerd       = "containerd.exe"
	NameContainerdShim   = "containerd-shim-runhcs-v1.exe"
	NameKubeProxy        = "kube-proxy.exe"
	NameHybridOverlay    = "hybrid-overlay-node.exe"
	NameFlannel          = "flanneld.exe"
	NameServiceWrapper   = "service-wrapper.exe"
	NameHostLocal        = "host-local.exe"
	NameWinBridge        = "win-bridge.exe"
	NameWinOverlay       = "win-overlay.exe"
	NameWindowsExporter  = "windows_exporter.exe"
	NameCSIProxy         = "csi-proxy.exe"
	NameAzureNodeManager = "azure-cloud-node-manager.exe"
	NameECRProvider      = "ecr-credential-provider.exe"
)

// Parts lists all parts of a complete payload, required parts first. The paths come from package contract.
func Parts() []Part {
	return []Part{
		{Name: NameDaemon, Path: contract.PathDaemon, Feature: FeatureNode, Required: true},
		{Name: NameKubelet, Path: contract.PathKubelet, Feature: FeatureNode, Required: true, Skewed: true},
		{Name: NameKubeLogRunner, Path: contract.PathKubeLogRunner, Feature: FeatureNode, Required: true},
		{Name: NameContainerd, Path: contract.PathContainerd, Feature: FeatureRuntime, Required: true},
		{Name: NameContainerdShim, Path: contract.PathContainerdShim, Feature: FeatureRuntime, Required: true},
		{Name: NameKubeProxy, Path: contract.PathKubeProxy, Feature: FeatureServiceNetwork, Skewed: true},
		{Name: NameHybridOverlay, Path: contract.PathHybridOverlay, Feature: FeaturePodNetwork},
		{Name: NameFlannel, Path: contract.PathFlannel, Feature: FeatureFlannel},
		{Name: NameServiceWrapper, Path: contract.PathServiceWrapper, Feature: FeatureFlannel},
		{Name: NameHostLocal, Path: contract.DirCNI + `\` + NameHostLocal, Feature: FeaturePodNetwork},
		{Name: NameWinBridge, Path: contract.DirCNI + `\` + NameWinBridge, Feature: FeaturePodNetwork},
		{Name: NameWinOverlay, Path: contract.DirCNI + `\` + NameWinOverlay, Feature: FeaturePodNetwork},
		{Name: NameWindowsExporter, Path: contract.PathWindowsExporter, Feature: FeatureMetrics},
		{Name: NameCSIProxy, Path: contract.PathCSIProxy, Feature: FeatureStorage},
		{Name: NameAzureNodeManager, Path: contract.PathAzureNodeManager, Feature: FeatureCloudNode,
			Platform: contract.PlatformAzure},
		{Name: NameECRProvider, Path: contract.PathECRProvider, Feature: FeatureImageCredential,
			Platform: contract.PlatformAWS},
	}
}

func isSkewed(name string) bool {
	p, _ := PartNamed(name)
	return p.Skewed
}

// PartNamed returns the part with a name. It returns false if there is no such part.
func PartNamed(name string) (Part, bool) {
	for _, p := range Parts() {
		if p.Name == name {
			return p, true
		}
	}
	return Part{}, false
}
