package blueprint

import (
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// pathCredentialProviderConfig is the file that tells kubelet how to get image pull credentials from the cloud.
const pathCredentialProviderConfig = contract.DirK + `\credential-provider-config.yaml`

const varCloudNodeKubeconfig = "CLOUD_NODE_KUBECONFIG"

// cloudNode renders the service of cloud-node-manager, because OpenShift's cloud controller on Azure doesn't initialise
// Nodes. The program has its own identity, because the daemon's identity lacks the rights.
func cloudNode(in Input, bin binaries) (part, error) {
	if in.Facts.Platform != contract.PlatformAzure {
		return part{}, nil
	}
	if off, ok := bin.without(payload.FeatureCloudNode, contract.PathAzureNodeManager); ok {
		return off, nil
	}
	log, runner := in.Logging.Runner(contract.ServiceCloudNode)
	words := append(runner, contract.PathAzureNodeManager, "--windows-service", "--node-name="+varNodeName,
		"--wait-routes=false", "--kubeconfig="+varCloudNodeKubeconfig)
	return part{services: []contract.Service{{
		Name: contract.ServiceCloudNode, Command: command(words...),
		NodeVariables: []contract.NodeVariable{nodeName()},
		HostVariables: []contract.HostVariable{{Name: varCloudNodeKubeconfig, Fact: contract.FactCloudNodeKubeconfig}},
		Priority:      3, Log: log,
	}}}, nil
}

// usesCredentialProvider reports whether kubelet gets image pull credentials from the cloud. This is the case on AWS,
// if Linux workers do the same and the payload has the credential provider.
func usesCredentialProvider(in Input, bin binaries) bool {
	return in.Facts.Platform == contract.PlatformAWS && in.Facts.CredentialProviders != nil &&
		bin.has(contract.PathECRProvider)
}

// credentialProvider renders the Linux workers' configuration of credential providers, with Windows program names.
func credentialProvider(in Input, bin binaries) (part, error) {
	if in.Facts.Platform != contract.PlatformAWS {
		return part{}, nil
	}
	if off, ok := bin.without(payload.FeatureImageCredential, contract.PathECRProvider); ok {
		return off, nil
	}
	if in.Facts.CredentialProviders == nil {
		return part{off: []Off{{Feature: payload.FeatureImageCredential,
			Reason: "the rendered MachineConfig of workers configures no credential provider"}}}, nil
	}
	config := in.Facts.CredentialProviders.DeepCopy()
	for i := range config.Providers {
		if name := config.Providers[i].Name; !strings.HasSuffix(strings.ToLower(name), ".exe") {
			config.Providers[i].Name = name + ".exe"
		}
	}
	content, err := yaml.Marshal(config)
	if err != nil {
		return part{}, rendering(pathCredentialProviderConfig, err)
	}
	return part{files: []contract.File{{Path: pathCredentialProviderConfig, Content: string(content),
		Services: []string{contract.ServiceKubelet}}}}, nil
}
