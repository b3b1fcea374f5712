package blueprint

import (
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// cniDirs returns the directories of the CNI plugins and of their configuration. The operator's own directories are
// separate from the directories of an external network, which are the defaults of Calico and sig-windows-tools on
// Windows. https://docs.tigera.io/calico/latest/reference/installation/api#windowsnodespec
func cniDirs(network string) (plugins, config string) {
	if network == NetworkExternal {
		return contract.DirExternalCNI, contract.DirExternalCNIConfig
	}
	return contract.DirCNI, contract.DirCNIConfig
}

// overlayOf returns the service and the programs that join a host to the pod network.
func overlayOf(network string) (service string, programs []string) {
	if network == NetworkFlannel {
		return contract.ServiceFlannel, []string{contract.PathFlannel, contract.PathServiceWrapper}
	}
	return contract.ServiceHybridOverlay, []string{contract.PathHybridOverlay}
}

// hnsNetwork returns the name that the pod network has in the Host Networking Service (HNS).
func hnsNetwork(in Input) string {
	return contract.Manifest{PodNetwork: in.Facts.podNetwork()}.HNSNetwork()
}

// cni renders the configuration of the CNI plugin win-overlay, which connects pods to the overlay network. If the
// payload lacks the programs of the overlay network, cni renders nothing. containerd notices a changed file by itself,
// so no service needs a restart. The policies follow version 2 of the host compute network's schema.
// https://learn.microsoft.com/windows-server/networking/technologies/hcn/hcn-json-document-schemas
func cni(in Input, bin binaries) (part, error) {
	if _, programs := overlayOf(in.Facts.NetworkType); len(bin.missing(programs...)) > 0 {
		return part{}, nil
	}
	if off, ok := bin.without(payload.FeaturePodNetwork, pathWinOverlay, pathHostLocal); ok {
		return off, nil
	}
	services := in.Facts.ServiceNetwork.Masked().String()
	// Traffic to these networks keeps the pod's address as its source address.
	within := []string{services}
	if in.Facts.NetworkType == NetworkFlannel {
		within = append(within, in.Facts.Flannel.Network.Masked().String())
	}
	policy := func(kind string, settings table) table {
		return table{"name": "EndpointPolicy", "value": table{"Type": kind, "Settings": settings}}
	}
	content, err := compactJSON(table{
		"cniVersion": "0.2.0", "name": hnsNetwork(in), "type": "win-overlay", "apiVersion": 2,
		"capabilities": table{"portMappings": true, "dns": true},
		"ipam":         table{"type": "host-local", "subnet": varHNSSubnet},
		"policies": []table{
			policy("OutBoundNAT", table{"Exceptions": within}),
			policy("SDNRoute", table{"DestinationPrefix": services, "NeedEncap": true}),
			policy("ProviderAddress", table{"ProviderAddress": varManagementIP}),
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
