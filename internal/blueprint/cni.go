package blueprint

import (
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// cniNetwork is a network configuration of the CNI plugin win-overlay, with version 2 policies of the host
// compute network.
// https://learn.microsoft.com/windows-server/networking/technologies/hcn/hcn-json-document-schemas
type cniNetwork struct {
	CNIVersion   string          `json:"cniVersion"`
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	APIVersion   int             `json:"apiVersion"`
	Capabilities map[string]bool `json:"capabilities"`
	IPAM         cniIPAM         `json:"ipam"`
	Policies     []cniPolicy     `json:"policies"`
}

type cniIPAM struct {
	Type   string `json:"type"`
	Subnet string `json:"subnet"`
}

type cniPolicy struct {
	Name  string         `json:"name"`
	Value endpointPolicy `json:"value"`
}

type endpointPolicy struct {
	Type     string         `json:"Type"`
	Settings map[string]any `json:"Settings"`
}

// cniPlaces are the directories of the CNI plugins and of their configuration.
type cniPlaces struct{ plugins, config string }

// cniDirs returns the CNI directories. The operator's own directories are separate from the directories of an external
// network, which are the defaults of Calico and sig-windows-tools on Windows.
// https://docs.tigera.io/calico/latest/reference/installation/api#windowsnodespec
func cniDirs(network string) cniPlaces {
	if network == NetworkExternal {
		return cniPlaces{plugins: contract.DirExternalCNI, config: contract.DirExternalCNIConfig}
	}
	return cniPlaces{plugins: contract.DirCNI, config: contract.DirCNIConfig}
}

// overlay names the service and the programs that join a host to the pod network.
type overlay struct {
	service  string
	programs []string
}

func overlayOf(network string) overlay {
	if network == NetworkFlannel {
		return overlay{contract.ServiceFlannel, []string{contract.PathFlannel, contract.PathServiceWrapper}}
	}
	return overlay{contract.ServiceHybridOverlay, []string{contract.PathHybridOverlay}}
}

// hnsNetwork returns the name of the pod network's HNS network.
func hnsNetwork(in Input) string {
	return contract.Manifest{PodNetwork: in.Facts.podNetwork()}.HNSNetwork()
}

// cni connects pods to the overlay network, if there is one. containerd notices a new file by itself, so no
// service restarts.
func cni(in Input, bin binaries) (part, error) {
	if len(bin.missing(overlayOf(in.Facts.NetworkType).programs...)) > 0 {
		return part{}, nil
	}
	if off, ok := bin.without(payload.FeaturePodNetwork, pathWinOverlay, pathHostLocal); ok {
		return off, nil
	}
	services := in.Facts.ServiceNetwork.Masked().String()
	// Traffic within the cluster keeps the pod's address.
	within := []string{services}
	if in.Facts.NetworkType == NetworkFlannel {
		within = append(within, in.Facts.Flannel.Network.Masked().String())
	}
	policy := func(kind string, settings map[string]any) cniPolicy {
		return cniPolicy{Name: "EndpointPolicy", Value: endpointPolicy{Type: kind, Settings: settings}}
	}
	content, err := compactJSON(cniNetwork{
		CNIVersion: "0.2.0", Name: hnsNetwork(in), Type: "win-overlay", APIVersion: 2,
		Capabilities: map[string]bool{"portMappings": true, "dns": true},
		IPAM:         cniIPAM{Type: "host-local", Subnet: varHNSSubnet},
		Policies: []cniPolicy{
			policy("OutBoundNAT", map[string]any{"Exceptions": within}),
			policy("SDNRoute", map[string]any{"DestinationPrefix": services, "NeedEncap": true}),
			policy("ProviderAddress", map[string]any{"ProviderAddress": varManagementIP}),
		},
	}, keepAll)
	if err != nil {
		return part{}, rendering(contract.PathCNIConfig, err)
	}
	return part{files: []contract.File{{
		Path: contract.PathCNIConfig, Content: content,
		HostVariables: []contract.HostVariable{fact(varHNSSubnet, contract.FactHNSSubnet),
			fact(varManagementIP, contract.FactManagementIP)},
	}}}, nil
}

func keepAll(any) bool { return false }
