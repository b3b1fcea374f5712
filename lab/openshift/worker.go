package openshift

import (
	"encoding/json"
	"fmt"
	"net/url"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// kubeletUnit is the part of a Linux worker's kubelet.service that the operator reads.
const kubeletUnit = `[Service]
ExecStart=/usr/local/bin/kubenswrapper \
    /usr/bin/kubelet \
      --config=/etc/kubernetes/kubelet.conf \
      --bootstrap-kubeconfig=/etc/kubernetes/kubeconfig \
      --kubeconfig=/var/lib/kubelet/kubeconfig \
      --node-labels=node-role.kubernetes.io/worker,node.openshift.io/os_id=${ID} \
      --cloud-provider=%s \
      --v=${KUBELET_LOG_LEVEL}
`

// credentialProvider is the configuration of OpenShift's workers on AWS.
const credentialProvider = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr-credential-provider
  matchImages:
  - "*.dkr.ecr.*.amazonaws.com"
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
`

// cloudProvider returns kubelet's cloud provider flag on workers. On clouds, it is external, because a separate
// cloud controller runs there.
func cloudProvider(platform configv1.PlatformType) string {
	if platform == configv1.NonePlatformType {
		return ""
	}
	return "external"
}

// workerConfig returns the rendered configuration of Linux workers.
func workerConfig(platform configv1.PlatformType) *mcfgv1.MachineConfig {
	ignition := map[string]any{
		"ignition": map[string]any{"version": "3.5.0"},
		"systemd": map[string]any{"units": []any{map[string]any{
			"name": "kubelet.service", "enabled": true, "contents": fmt.Sprintf(kubeletUnit, cloudProvider(platform)),
		}}},
	}
	if platform == configv1.AWSPlatformType {
		ignition["storage"] = map[string]any{"files": []any{map[string]any{
			"path":     "/etc/kubernetes/credential-providers/ecr-credential-provider.yaml",
			"contents": map[string]any{"source": "data:," + url.PathEscape(credentialProvider)},
		}}}
	}
	raw, err := json.Marshal(ignition)
	if err != nil {
		panic(err) // maps of strings can always be marshalled
	}
	return &mcfgv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: rendered,
			Labels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}},
		Spec: mcfgv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: raw}},
	}
}
