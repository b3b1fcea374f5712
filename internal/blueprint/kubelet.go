package blueprint

import (
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	criEndpoint  = "npipe://./pipe/containerd-containerd"
	maxPods      = 250
	kubeAPIQPS   = 50
	kubeAPIBurst = 100
)

// kubelet renders kubelet's service and configuration. The service starts before the Node exists, and registers it.
func kubelet(in Input, bin binaries) (part, error) {
	config, err := kubeletConfig(in, bin)
	if err == nil {
		config, err = in.fragment.over(config)
	}
	if err != nil {
		return part{}, rendering(contract.PathKubeletConfig, err)
	}
	log, runner := in.Logging.Runner(contract.ServiceKubelet)
	words := append(runner,
		contract.PathKubelet,
		"--config="+contract.PathKubeletConfig,
		"--bootstrap-kubeconfig="+contract.PathBootstrapKubeconfig,
		"--kubeconfig="+contract.PathKubeconfig,
		"--cert-dir="+contract.DirKubeletPKI,
		"--windows-service",
		"--node-labels="+contract.OSIDLabel+"="+contract.OSIDWindows,
		"--windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS",
		"--v="+verbosity(in.Spec.Logging.Debug),
		"--node-ip="+varNodeIP,
	)
	variables := []contract.HostVariable{fact(varNodeIP, contract.FactNodeIP)}
	if in.Facts.CloudProvider != "" {
		words = append(words, "--cloud-provider="+in.Facts.CloudProvider)
	}
	if overridesName(in.Facts.Platform) {
		words = append(words, "--hostname-override="+varHostname)
		variables = append(variables, fact(varHostname, in.Facts.Platform.NodeName()))
	}
	if usesCredentialProvider(in, bin) {
		words = append(words, "--image-credential-provider-bin-dir="+contract.DirK,
			"--image-credential-provider-config="+pathCredentialProviderConfig)
	}
	return part{
		services: []contract.Service{{
			Name: contract.ServiceKubelet, Command: command(words...), HostVariables: variables,
			Dependencies: []string{contract.ServiceContainerd}, Bootstrap: true, Priority: 1, Disruptive: true,
			Log: log,
		}},
		files: []contract.File{{Path: contract.PathKubeletConfig, Content: config,
			Services: []string{contract.ServiceKubelet}}},
	}, nil
}

// overridesName reports whether a Node's name may differ from kubelet's default. If so, kubelet gets the name
// that the operator and the daemon agreed on.
func overridesName(platform contract.Platform) bool {
	return platform == contract.PlatformAWS || platform == contract.PlatformGCP || platform == contract.PlatformVSphere
}

func kubeletConfig(in Input, bin binaries) (string, error) {
	config := kubeletconfigv1beta1.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: kubeletconfigv1beta1.SchemeGroupVersion.String(),
			Kind: "KubeletConfiguration"},
		RotateCertificates: true,
		ServerTLSBootstrap: true,
		Authentication: kubeletconfigv1beta1.KubeletAuthentication{
			X509:      kubeletconfigv1beta1.KubeletX509Authentication{ClientCAFile: contract.PathKubeletCA},
			Anonymous: kubeletconfigv1beta1.KubeletAnonymousAuthentication{Enabled: new(false)},
		},
		ClusterDomain:         in.Facts.ClusterDomain(),
		ClusterDNS:            []string{in.Facts.ClusterDNS().String()},
		CgroupsPerQOS:         new(false),
		RuntimeRequestTimeout: metav1.Duration{Duration: 10 * time.Minute},
		MaxPods:               maxPods,
		KubeAPIQPS:            new(int32(kubeAPIQPS)),
		KubeAPIBurst:          kubeAPIBurst,
		SerializeImagePulls:   new(false),
		Logging: logsapi.LoggingConfiguration{
			FlushFrequency: logsapi.TimeOrMetaDuration{Duration: metav1.Duration{Duration: 5 * time.Second},
				SerializeAsString: true}},
		EnableSystemLogHandler: new(true),
		EnableSystemLogQuery:   new(true),
		FeatureGates: gates{"NodeLogQuery": 36,
			"RotateKubeletServerCertificate": 0}.of(bin.file(contract.PathKubelet)),
		ContainerLogMaxSize:      "50Mi",
		EnforceNodeAllocatable:   []string{"none"},
		EvictionHard:             evictionHard(),
		SystemReserved:           map[string]string{"cpu": "500m", "ephemeral-storage": "1Gi", "memory": "2Gi"},
		ContainerRuntimeEndpoint: criEndpoint,
		RegisterNode:             new(true),
		RegisterWithTaints: []corev1.Taint{{Key: contract.TaintKey, Value: contract.TaintValue,
			Effect: corev1.TaintEffectNoSchedule}},
		ResolverConfig: new(""),
		// kubelet runs the programs in this directory. The default is outside of C:\k, and any user may create it.
		VolumePluginDir: contract.DirVolumePlugins,
	}
	return compactJSON(config, func(value any) bool { return value == "0s" || value == "0" || value == 0.0 })
}

// evictionHard returns the eviction thresholds. It repeats kubelet's default for memory on Windows, because kubelet
// ignores all its defaults if any threshold is set.
func evictionHard() map[string]string {
	return map[string]string{"memory.available": "500Mi", "nodefs.available": "10%", "imagefs.available": "15%"}
}

// compactJSON writes an object with sorted keys, and omits nulls, empty objects and values for which the function drop
// returns true. Otherwise, the JSON would contain unset fields that an older kubelet or kube-proxy doesn't know.
func compactJSON(object any, drop func(value any) bool) (string, error) {
	raw, err := json.Marshal(object)
	if err != nil {
		return "", err
	}
	var generic any
	if err = json.Unmarshal(raw, &generic); err != nil {
		return "", err
	}
	out, err := json.MarshalIndent(pruned(generic, drop), "", "  ")
	return string(out) + "\n", err
}

func pruned(value any, drop func(value any) bool) any {
	object, ok := value.(map[string]any)
	if !ok {
		return value
	}
	for key, child := range object {
		child = pruned(child, drop)
		inner, isObject := child.(map[string]any)
		if _, isList := child.([]any); child == nil || isObject && len(inner) == 0 || !isObject && !isList &&
			drop(child) {
			delete(object, key)
			continue
		}
		object[key] = child
	}
	return object
}
