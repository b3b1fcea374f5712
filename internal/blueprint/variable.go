package blueprint

import "github.com/windows-nodes/wmco/internal/contract"

// Names of variables in commands and files. The daemon replaces them as plain text, so no name may be part of
// another name or of rendered text.
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

// nodeSubnet is the node's subnet of the pod network. On a hybrid overlay, the network plugin assigns it.
// Otherwise kube-controller-manager does.
func nodeSubnet(in Input) contract.NodeVariable {
	if in.Facts.NetworkType == NetworkFlannel {
		return contract.NodeVariable{Name: varNodeSubnet, JSONPath: "{.spec.podCIDR}"}
	}
	return contract.NodeVariable{Name: varNodeSubnet,
		JSONPath: `{.metadata.annotations.k8s\.ovn\.org/hybrid-overlay-node-subnet}`}
}

// fact is a value that the daemon determines on its host.
func fact(name string, f contract.Fact) contract.HostVariable {
	return contract.HostVariable{Name: name, Fact: f}
}
