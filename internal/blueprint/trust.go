package blueprint

import "github.com/windows-nodes/wmco/internal/contract"

// trust are the CA bundles that nodes need before they can believe the API server. kubelet reads its own anew when the file changes; hybrid-overlay
// reads its at the start only.
func trust(in Input, bin binaries) (part, error) {
	bootstrap := contract.File{Path: contract.PathBootstrapCA, Content: in.Facts.BootstrapCA}
	if bin.has(contract.PathHybridOverlay) {
		bootstrap.Services = []string{contract.ServiceHybridOverlay}
	}
	return part{files: []contract.File{bootstrap, {Path: contract.PathKubeletCA, Content: in.Facts.KubeletCA}}}, nil
}
