package blueprint

import "github.com/windows-nodes/wmco/internal/contract"

// Names of variables in commands and files. The daemon searches for the names as plain text, and replaces them. So no
// name may be part of another name, or of text that must not be replaced.
const (
	varNodeName     = "NODE_NAME"
	varNodeSubnet   = "NODE_SUBNET"
	varHostname     = "HOST_NAME"
	varNodeIP       = "NODE_IP"
	varSourceVIP    = "SOURCE_VIP"
	varHNSSubnet    = "HNS_SUBNET"
	varManagementIP = "MANAGEMENT_IP"
)

func nodeName() contract.NodeVariable {
	return contract.NodeVariable{Name: varNodeName, JSONPath: "{.metadata.name}"}
}

// nodeSubnet returns the variable for the node's subnet of the pod network. On a hybrid overlay, the network plugin
// assigns the subnet. On flannel's network, kube-controller-manager assigns it.
func nodeSubnet(in Input) contract.NodeVariable {
	if in.Facts.NetworkType == NetworkFlannel {
		return contract.NodeVariable{Name: varNodeSubnet, JSONPath: "{.spec.podCIDR}"}
	}
	return contract.NodeVariable{Name: varNodeSubnet,
		JSONPath: `{.metadata.annotations.k8s\.ovn\.org/hybrid-overlay-node-subnet}`}
}

func fact(name string, f contract.Fact) contract.HostVariable {
	return contract.HostVariable{Name: name, Fact: f}
}
