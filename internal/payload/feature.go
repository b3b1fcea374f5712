package payload

import (
	"github.com/windows-nodes/wmco/internal/contract"
)

// Part is one binary that a complete payload holds.
type Part struct {
	// Name is the file name of the binary, unique without regard to case.
	Name string
	// Path is where it lies on a node.
	Path string
	// Feature says in words what needs it, and so what is off without it.
	Feature string
	// Required parts are those without which no host becomes a node.
	Required bool
	// Platform is the only infrastructure platform that uses it; empty means all of them.
	Platform string
	// Skewed parts must fit the API server's version, so a payload may hold several versions of them.
	Skewed bool
}

// Platforms that have parts of their own, as the cluster's Infrastructure object names them.
const (
	platformAWS   = "AWS"
	platformAzure = "Azure"
)

// Features, as a summary or a condition names them.
const (
	featureNode       = "joining as a node"
	featureRuntime    = "running containers"
	featurePodNetwork = "pod network"
	featureFlannel    = "pod network with flannel"
	featureServices   = "service network"
	featureMetrics    = "node metrics"
	featureStorage    = "CSI storage"
	featureAzure      = "cloud node manager on Azure"
	featureECR        = "image pulls from Amazon ECR"
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

// Parts lists every binary of a complete payload, the required ones first. The paths are those of
// the contract.
func Parts() []Part {
	return []Part{
		{Name: NameDaemon, Path: contract.PathDaemon, Feature: featureNode, Required: true},
		{Name: NameKubelet, Path: contract.PathKubelet, Feature: featureNode, Required: true, Skewed: true},
		{Name: NameKubeLogRunner, Path: contract.PathKubeLogRunner, Feature: featureNode, Required: true},
		{Name: NameContainerd, Path: contract.PathContainerd, Feature: featureRuntime, Required: true},
		{Name: NameContainerdShim, Path: contract.PathContainerdShim, Feature: featureRuntime, Required: true},
		{Name: NameKubeProxy, Path: contract.PathKubeProxy, Feature: featureServices, Skewed: true},
		{Name: NameHybridOverlay, Path: contract.PathHybridOverlay, Feature: featurePodNetwork},
		{Name: NameFlannel, Path: contract.PathFlannel, Feature: featureFlannel},
		{Name: NameServiceWrapper, Path: contract.PathServiceWrapper, Feature: featureFlannel},
		{Name: NameHostLocal, Path: contract.DirCNI + `\` + NameHostLocal, Feature: featurePodNetwork},
		{Name: NameWinBridge, Path: contract.DirCNI + `\` + NameWinBridge, Feature: featurePodNetwork},
		{Name: NameWinOverlay, Path: contract.DirCNI + `\` + NameWinOverlay, Feature: featurePodNetwork},
		{Name: NameWindowsExporter, Path: contract.PathWindowsExporter, Feature: featureMetrics},
		{Name: NameCSIProxy, Path: contract.PathCSIProxy, Feature: featureStorage},
		{Name: NameAzureNodeManager, Path: contract.PathAzureNodeManager, Feature: featureAzure,
			Platform: platformAzure},
		{Name: NameECRProvider, Path: contract.PathECRProvider, Feature: featureECR, Platform: platformAWS},
	}
}

// isSkewed reports whether a payload may hold a part of this name several times.
func isSkewed(name string) bool {
	p, _ := PartNamed(name)
	return p.Skewed
}

// PartNamed finds a part by its name.
func PartNamed(name string) (Part, bool) {
	for _, p := range Parts() {
		if p.Name == name {
			return p, true
		}
	}
	return Part{}, false
}
