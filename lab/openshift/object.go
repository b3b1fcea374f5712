package openshift

import (
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	clusterName    = "cluster"
	serviceNetwork = "172.30.0.0/16"
	clusterNetwork = "10.128.0.0/14"
	clusterDNS     = "172.30.0.10"
	rendered       = "rendered-worker-0123456789abcdef"
	// HybridNetwork is the prefix of Windows nodes' subnets. Each node gets a /24.
	HybridNetwork = "10.132.0.0/14"
)

// objects returns all objects that Install creates, in order.
func objects(o Options) []client.Object {
	list := []client.Object{
		namespace(contract.MachineConfigNamespace), namespace(contract.MachineAPINamespace),
		namespace(contract.ConfigNamespace),
		network(), operatorNetwork(), pullSecret(), workerPool(),
		&configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: clusterName}},
		&configv1.Image{ObjectMeta: metav1.ObjectMeta{Name: clusterName}},
	}
	return slices.Concat(list, ofPlatform(o), bootstrapRights())
}

// ofPlatform returns the objects that contain the cluster's platform.
func ofPlatform(o Options) []client.Object {
	return []client.Object{infrastructure(o), workerConfig(o.Platform), controllerConfig(o)}
}

func infrastructure(o Options) *configv1.Infrastructure {
	return &configv1.Infrastructure{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec:       configv1.InfrastructureSpec{PlatformSpec: configv1.PlatformSpec{Type: o.Platform}},
		Status: configv1.InfrastructureStatus{
			InfrastructureName: "lab", APIServerURL: o.APIServer, APIServerInternalURL: o.APIServer,
			PlatformStatus:         &configv1.PlatformStatus{Type: o.Platform},
			ControlPlaneTopology:   configv1.HighlyAvailableTopologyMode,
			InfrastructureTopology: configv1.HighlyAvailableTopologyMode,
			CPUPartitioning:        configv1.CPUPartitioningNone,
		},
	}
}

func network() *configv1.Network {
	networks := []configv1.ClusterNetworkEntry{{CIDR: clusterNetwork, HostPrefix: 23}}
	return &configv1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec: configv1.NetworkSpec{NetworkType: string(operatorv1.NetworkTypeOVNKubernetes),
			ServiceNetwork: []string{serviceNetwork}, ClusterNetwork: networks},
		Status: configv1.NetworkStatus{NetworkType: string(operatorv1.NetworkTypeOVNKubernetes),
			ServiceNetwork: []string{serviceNetwork}, ClusterNetwork: networks},
	}
}

func operatorNetwork() *operatorv1.Network {
	return &operatorv1.Network{
		ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec: operatorv1.NetworkSpec{
			OperatorSpec:   operatorv1.OperatorSpec{ManagementState: operatorv1.Managed},
			ServiceNetwork: []string{serviceNetwork},
			ClusterNetwork: []operatorv1.ClusterNetworkEntry{{CIDR: clusterNetwork, HostPrefix: 23}},
			DefaultNetwork: operatorv1.DefaultNetworkDefinition{
				Type: operatorv1.NetworkTypeOVNKubernetes,
				OVNKubernetesConfig: &operatorv1.OVNKubernetesConfig{
					HybridOverlayConfig: &operatorv1.HybridOverlayConfig{
						HybridClusterNetwork: []operatorv1.ClusterNetworkEntry{{CIDR: HybridNetwork, HostPrefix: 24}},
					},
				},
			},
		},
	}
}

func pullSecret() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, Name: "pull-secret"},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{
			corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.lab.example":{"auth":"bGFiOmxhYg=="}}}`)},
	}
}

func workerPool() *mcfgv1.MachineConfigPool {
	reference := corev1.ObjectReference{APIVersion: mcfgv1.GroupVersion.String(), Kind: "MachineConfig", Name: rendered}
	return &mcfgv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: mcfgv1.MachineConfigPoolSpec{
			MachineConfigSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{"machineconfiguration.openshift.io/role": "worker"}},
			NodeSelector:  &metav1.LabelSelector{MatchLabels: map[string]string{contract.WorkerLabel: ""}},
			Configuration: mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: reference},
		},
		Status: mcfgv1.MachineConfigPoolStatus{
			Configuration: mcfgv1.MachineConfigPoolStatusConfiguration{ObjectReference: reference}},
	}
}

func controllerConfig(o Options) *mcfgv1.ControllerConfig {
	return &mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"},
		Spec: mcfgv1.ControllerConfigSpec{
			ClusterDNSIP: clusterDNS, KubeAPIServerServingCAData: o.CA, RootCAData: o.CA,
			Images: map[string]string{}, IPFamilies: mcfgv1.IPFamiliesIPv4,
			BaseOSContainerImage: "quay.io/lab/os", ReleaseImage: "quay.io/lab/release",
			Infra: &configv1.Infrastructure{
				TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "Infrastructure"},
				ObjectMeta: metav1.ObjectMeta{Name: clusterName},
				Spec:       configv1.InfrastructureSpec{PlatformSpec: configv1.PlatformSpec{Type: o.Platform}},
				Status: configv1.InfrastructureStatus{
					PlatformStatus:         &configv1.PlatformStatus{Type: o.Platform},
					ControlPlaneTopology:   configv1.HighlyAvailableTopologyMode,
					InfrastructureTopology: configv1.HighlyAvailableTopologyMode,
					CPUPartitioning:        configv1.CPUPartitioningNone,
				},
			},
			DNS: &configv1.DNS{
				TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion.String(), Kind: "DNS"},
				ObjectMeta: metav1.ObjectMeta{Name: clusterName},
				Spec:       configv1.DNSSpec{BaseDomain: "lab.example"},
			},
			Network: &mcfgv1.NetworkInfo{},
			Proxy:   &configv1.ProxyStatus{},
		},
	}
}
