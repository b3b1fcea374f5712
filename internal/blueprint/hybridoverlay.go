package blueprint

import (
	"strconv"

	"github.com/windows-nodes/wmco/internal/contract"
)

// hybridOverlay joins the host to the hybrid overlay network. Once it runs, the network and with it the host facts about it appear.
func hybridOverlay(in Input, bin binaries) (part, error) {
	if off, ok := bin.without(FeaturePodNetwork, contract.PathHybridOverlay); ok {
		return off, nil
	}
	server, err := CanonicalAPIServer(in.Facts.APIServer)
	if err != nil {
		return part{}, rendering(contract.ServiceHybridOverlay, err)
	}
	words := []string{
		contract.PathHybridOverlay,
		"--node=" + varNodeName,
		"--bootstrap-kubeconfig=" + contract.PathKubeconfig,
		"--cert-dir=" + contract.DirCNIConfig,
		"--cert-duration=24h",
		"--windows-service",
		"--logfile=" + logFile("hybrid-overlay", "hybrid-overlay"),
		"--k8s-apiserver=" + server,
		"--k8s-cacert=" + contract.PathBootstrapCA,
	}
	if in.Facts.VXLANPort != 0 {
		words = append(words, "--hybrid-overlay-vxlan-port="+strconv.Itoa(int(in.Facts.VXLANPort)))
	}
	if in.Spec.Logging.Debug {
		words = append(words, "--loglevel=5")
	}
	return part{services: []contract.Service{{
		Name: contract.ServiceHybridOverlay, Command: command(words...), NodeVariables: []contract.NodeVariable{nodeName()},
		Dependencies: []string{contract.ServiceKubelet}, Priority: 2, Disruptive: true,
	}}}, nil
}
