package blueprint

import (
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Variables in flanneld's command. The Node's name is OWN_NODE: the command also has flanneld's own NODE_NAME.
const (
	varOwnNode           = "OWN_NODE"
	varFlannelKubeconfig = "FLANNEL_KUBECONFIG"
)

// flannel renders the service of flanneld, which joins the host to flannel's network. flanneld reads the Node's subnet
// only when it starts, so the service waits for a subnet and restarts when the subnet changes. The service wrapper runs
// flanneld, which isn't a Windows service and reads the Node's name only from an environment variable.
func flannel(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(payload.FeaturePodNetwork, contract.PathFlannel, contract.PathServiceWrapper); ok {
		return off, nil
	}
	const port = 4789
	config, err := compactJSON(table{"Network": in.Facts.Flannel.Network.Masked().String(), "Backend": table{
		"Type": "vxlan", "Name": in.Facts.podNetwork(), "VNI": in.Facts.Flannel.VNI, "Port": port}}, keepAll)
	if err != nil {
		return part{}, rendering(contract.PathFlannelConfig, err)
	}
	file := contract.LogFile(contract.ServiceFlannel)
	words := []string{
		contract.PathServiceWrapper, "--log-file=" + file, "--env=NODE_NAME=" + varOwnNode,
		"--env=POD_CIDR=" + varNodeSubnet,
		contract.PathFlannel,
		"--kube-subnet-mgr",
		"--kubeconfig-file=" + varFlannelKubeconfig,
		"--net-config-path=" + contract.PathFlannelConfig,
		"--subnet-file=" + contract.PathFlannelSubnet,
		"--iface=" + varNodeIP,
		// Only clouds that create routes for pods need the condition NetworkUnavailable. If flanneld doesn't set this
		// condition, its identity needs only the right to write its own Node's annotations.
		"--set-node-network-unavailable=false",
	}
	if in.Spec.Logging.Debug {
		words = append(words, "-v="+verbosity(true))
	}
	return part{
		services: []contract.Service{{
			Name: contract.ServiceFlannel, Command: command(words...),
			NodeVariables: []contract.NodeVariable{{Name: varOwnNode, JSONPath: nodeName().JSONPath}, nodeSubnet(in)},
			HostVariables: []contract.HostVariable{fact(varNodeIP, contract.FactNodeIP),
				fact(varFlannelKubeconfig, contract.FactFlannelKubeconfig)},
			Priority: 2, Disruptive: true,
			Log: in.Logging.log(file, false),
		}},
		files: []contract.File{{Path: contract.PathFlannelConfig, Content: config,
			Services: []string{contract.ServiceFlannel}}},
	}, nil
}
