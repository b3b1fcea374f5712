package blueprint

import "github.com/windows-nodes/wmco/internal/contract"

// Names of variables in commands and files. The daemon replaces them as plain text, so none is part
// of another or of any text that we render.
const (
	varNodeName     = "NODE_NAME"
	varNodeSubnet   = "NODE_SUBNET"
	varHostname     = "HOST_NAME"
	varNodeIP       = "NODE_IP"
	varSourceVIP    = "SOURCE_VIP"
	varHNSSubnet    = "HNS_SUBNET"
	varManagementIP = "MANAGEMENT_IP"
)

// nodeName is the name of the Node.
func nodeName() contract.NodeVariable {
	return contract.NodeVariable{Name: varNodeName, JSONPath: "{.metadata.name}"}
}

// nodeSubnet is the node's part of the pods' network: of the hybrid overlay the network plugin gave it, else
// kube-controller-manager.
func nodeSubnet(in Input) contract.NodeVariable {
	if in.Facts.NetworkType == NetworkFlannel {
		return contract.NodeVariable{Name: varNodeSubnet, JSONPath: "{.spec.podCIDR}"}
	}
	return contract.NodeVariable{Name: varNodeSubnet,
		JSONPath: `{.metadata.annotations.k8s\.ovn\.org/hybrid-overlay-node-subnet}`}
}

// fact is a value that the daemon finds on its host.
func fact(name string, f contract.Fact) contract.HostVariable {
	return contract.HostVariable{Name: name, Fact: f}
}
