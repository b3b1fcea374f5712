package blueprint

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configv1alpha1 "k8s.io/component-base/config/v1alpha1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeproxyconfigv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// kubeProxy renders kube-proxy, which makes Services reachable from the node. The service starts when the daemon knows
// two values for the configuration: the Node's subnet and the address of an endpoint on the overlay network.
func kubeProxy(in Input, bin binaries) (part, error) {
	overlay, programs := overlayOf(in.Facts.NetworkType)
	if off, ok := bin.without(payload.FeatureServiceNetwork, append(programs, contract.PathKubeProxy)...); ok {
		return off, nil
	}
	config, err := kubeProxyConfig(in, bin)
	if err != nil {
		return part{}, rendering(contract.PathKubeProxyConfig, err)
	}
	log, runner := in.Logging.Runner(contract.ServiceKubeProxy)
	words := append(runner, contract.PathKubeProxy, "--config="+contract.PathKubeProxyConfig, "--windows-service")
	return part{
		services: []contract.Service{{
			Name: contract.ServiceKubeProxy, Command: command(words...),
			Dependencies: []string{overlay}, Priority: 3, Disruptive: true,
			Log: log,
		}},
		files: []contract.File{{
			Path: contract.PathKubeProxyConfig, Content: config,
			NodeVariables: []contract.NodeVariable{nodeName(), nodeSubnet(in)},
			HostVariables: []contract.HostVariable{fact(varSourceVIP, contract.FactSourceVIP)},
			Services:      []string{contract.ServiceKubeProxy},
		}},
	}, nil
}

func kubeProxyConfig(in Input, bin binaries) (string, error) {
	config := kubeproxyconfigv1alpha1.KubeProxyConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeproxyconfigv1alpha1.SchemeGroupVersion.String(),
			Kind: "KubeProxyConfiguration"},
		FeatureGates:     gates{"WinDSR": 34, "WinOverlay": 34}.of(bin.file(contract.PathKubeProxy)),
		ClientConnection: configv1alpha1.ClientConnectionConfiguration{Kubeconfig: contract.PathKubeconfig},
		Mode:             "kernelspace",
		HostnameOverride: varNodeName,
		ClusterCIDR:      varNodeSubnet,
		Winkernel: kubeproxyconfigv1alpha1.KubeProxyWinkernelConfiguration{
			NetworkName: hnsNetwork(in), SourceVip: varSourceVIP, EnableDSR: true,
		},
	}
	if in.Spec.Logging.Debug {
		config.Logging = logsapi.LoggingConfiguration{Verbosity: 4}
	}
	return compactJSON(config, isZero)
}

// isZero reports whether kube-proxy treats a JSON value in the same way as a missing value.
func isZero(value any) bool {
	return value == "" || value == "0s" || value == "0" || value == 0.0 || value == false
}
