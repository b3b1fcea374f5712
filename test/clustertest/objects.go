package clustertest

import (
	"encoding/json"
	"fmt"
	"net/url"

	configv1 "github.com/openshift/api/config/v1"
	machineconfigurationv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// RenderedWorker is the name of the MachineConfig that workers run.
const RenderedWorker = "rendered-worker-0123456789abcdef0123456789abcdef"

// CredentialProvider is the configuration that OpenShift writes to AWS workers for images in the cloud's registry.
const CredentialProvider = `apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr-credential-provider
  matchImages:
  - "*.dkr.ecr.*.amazonaws.com"
  defaultCacheDuration: "12h"
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args:
  - get-credentials
`

// Options describe a cluster.
type Options struct {
	// Platform of the cluster. Default: None.
	Platform configv1.PlatformType
	// APIServer is the internal URL of the API server. Default: https://api-int.lab.example.com:6443.
	APIServer string
	// ServiceNetwork is the CIDR of Services. Default: 172.30.0.0/16.
	ServiceNetwork string
	// VXLANPort of the hybrid overlay. 0 omits the port.
	VXLANPort uint32
	// KubeletCA and RootCA are PEM bundles. If one is empty, Objects creates a new CA.
	KubeletCA, RootCA []byte
}

// Objects returns all objects that the operator reads facts from. Create them with Apply, because some have a status.
func Objects(o Options) ([]client.Object, error) {
	o = o.withDefaults()
	for _, ca := range []*[]byte{&o.KubeletCA, &o.RootCA} {
		if len(*ca) > 0 {
			continue
		}
		pem, err := Certificate("lab")
		if err != nil {
			return nil, err
		}
		*ca = pem
	}
	ign, err := ignition(o)
	if err != nil {
		return nil, err
	}
	return []client.Object{
		infrastructure(o), network(o), operatorNetwork(o), controllerConfig(o), workerPool(),
		&machineconfigurationv1.MachineConfig{
			ObjectMeta: metav1.ObjectMeta{Name: RenderedWorker},
			Spec:       machineconfigurationv1.MachineConfigSpec{Config: runtime.RawExtension{Raw: ign}},
		},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineConfigNamespace,
				Name: contract.BootstrapTokenSecret},
			Data: map[string][]byte{corev1.ServiceAccountRootCAKey: o.RootCA,
				corev1.ServiceAccountTokenKey: []byte("not to be read")},
		},
	}, nil
}

func (o Options) withDefaults() Options {
	if o.Platform == "" {
		o.Platform = configv1.NonePlatformType
	}
	if o.APIServer == "" {
		o.APIServer = "https://api-int.lab.example.com:6443"
	}
	if o.ServiceNetwork == "" {
		o.ServiceNetwork = "172.30.0.0/16"
	}
	return o
}

func infrastructure(o Options) *configv1.Infrastructure {
	platform := &configv1.PlatformStatus{Type: o.Platform}
	return &configv1.Infrastructure{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec:       configv1.InfrastructureSpec{PlatformSpec: configv1.PlatformSpec{Type: o.Platform}},
		Status: configv1.InfrastructureStatus{
			InfrastructureName: "lab", APIServerURL: o.APIServer, APIServerInternalURL: o.APIServer,
			PlatformStatus:         platform,
			ControlPlaneTopology:   configv1.HighlyAvailableTopologyMode,
			InfrastructureTopology: configv1.HighlyAvailableTopologyMode,
			CPUPartitioning:        configv1.CPUPartitioningNone,
		},
	}
}

func network(o Options) *configv1.Network {
	return &configv1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: configv1.NetworkSpec{
			NetworkType: "OVNKubernetes", ServiceNetwork: []string{o.ServiceNetwork},
			ClusterNetwork: []configv1.ClusterNetworkEntry{{CIDR: "10.128.0.0/14", HostPrefix: 23}},
		},
	}
}

func operatorNetwork(o Options) *operatorv1.Network {
	overlay := &operatorv1.HybridOverlayConfig{
		HybridClusterNetwork: []operatorv1.ClusterNetworkEntry{{CIDR: "10.132.0.0/14", HostPrefix: 23}}}
	if o.VXLANPort != 0 {
		overlay.HybridOverlayVXLANPort = &o.VXLANPort
	}
	return &operatorv1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
		Spec: operatorv1.NetworkSpec{
			OperatorSpec:   operatorv1.OperatorSpec{ManagementState: operatorv1.Managed},
			ServiceNetwork: []string{o.ServiceNetwork},
			ClusterNetwork: []operatorv1.ClusterNetworkEntry{{CIDR: "10.128.0.0/14", HostPrefix: 23}},
			DefaultNetwork: operatorv1.DefaultNetworkDefinition{
				Type:                operatorv1.NetworkTypeOVNKubernetes,
				OVNKubernetesConfig: &operatorv1.OVNKubernetesConfig{HybridOverlayConfig: overlay},
			},
		},
	}
}

func controllerConfig(o Options) *machineconfigurationv1.ControllerConfig {
	infra, dns := infrastructure(o), &configv1.DNS{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	infra.SetGroupVersionKind(configv1.GroupVersion.WithKind("Infrastructure"))
	dns.SetGroupVersionKind(configv1.GroupVersion.WithKind("DNS"))
	return &machineconfigurationv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"},
		Spec: machineconfigurationv1.ControllerConfigSpec{
			KubeAPIServerServingCAData: o.KubeletCA, RootCAData: o.RootCA, ClusterDNSIP: "172.30.0.10",
			Images: map[string]string{}, IPFamilies: machineconfigurationv1.IPFamiliesIPv4, Infra: infra, DNS: dns,
			ReleaseImage:         "quay.io/openshift-release-dev/ocp-release:lab",
			BaseOSContainerImage: "quay.io/openshift-release-dev/ocp-v4.0-art-dev:lab",
		},
	}
}

func workerPool() *machineconfigurationv1.MachineConfigPool {
	configuration := machineconfigurationv1.MachineConfigPoolStatusConfiguration{
		ObjectReference: corev1.ObjectReference{Name: RenderedWorker}}
	role := map[string]string{machineconfigurationv1.MachineConfigRoleLabelKey: "worker"}
	return &machineconfigurationv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: machineconfigurationv1.MachineConfigPoolSpec{
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: role}, Configuration: configuration,
		},
		Status: machineconfigurationv1.MachineConfigPoolStatus{Configuration: configuration},
	}
}

// ignition returns the part of a worker's Ignition configuration that the operator reads.
func ignition(o Options) ([]byte, error) {
	flags := ""
	if o.Platform != configv1.NonePlatformType {
		flags = "      --cloud-provider=external \\\n"
	}
	unit := fmt.Sprintf(`[Unit]
Description=Kubernetes Kubelet

[Service]
Type=notify
Environment="KUBELET_LOG_LEVEL=2"
ExecStart=/usr/local/bin/kubenswrapper \
    /usr/bin/kubelet \
      --config=/etc/kubernetes/kubelet.conf \
      --bootstrap-kubeconfig=/etc/kubernetes/kubeconfig \
      --node-labels=node-role.kubernetes.io/worker,node.openshift.io/os_id=${ID},${CUSTOM_KUBELET_LABELS} \
%s      --v=${KUBELET_LOG_LEVEL}

[Install]
WantedBy=multi-user.target
`, flags)
	files := []any{}
	if o.Platform == configv1.AWSPlatformType {
		files = append(files, map[string]any{
			"path":     "/etc/kubernetes/credential-providers/ecr-credential-provider.yaml",
			"contents": map[string]any{"source": "data:," + url.PathEscape(CredentialProvider), "compression": ""},
		})
	}
	return json.Marshal(map[string]any{
		"ignition": map[string]any{"version": "3.4.0"},
		"storage":  map[string]any{"files": files},
		"systemd": map[string]any{"units": []any{map[string]any{"name": "kubelet.service", "enabled": true,
			"contents": unit}}},
	})
}
