package program

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// kubeletFlags are the flags that have an effect on the stand-in.
type kubeletFlags struct {
	config, bootstrapKubeconfig, kubeconfig, certDir string
	labels                                           map[string]string
	nodeIP                                           netip.Addr
	hostname, cloudProvider                          string
}

// Flags of kubelet 1.36 that the stand-in accepts and ignores (cmd/kubelet/app/options). The stand-in reads taints from
// the configuration file.
const (
	kubeletSwitches = `anonymous-auth authentication-token-webhook cgroups-per-qos contention-profiling cpu-cfs-quota
		enable-controller-attach-detach enable-debugging-handlers enable-server exit-on-lock-contention
		experimental-allocatable-ignore-eviction fail-cgroupv1 fail-swap-on kernel-memcg-notification
		local-storage-capacity-isolation make-iptables-util-chains protect-kernel-defaults register-node
		rotate-certificates rotate-server-certificates runonce seccomp-default serialize-image-pulls
		windows-service log-json-split-stream`
	kubeletValues = `authentication-token-webhook-cache-ttl authorization-webhook-cache-authorized-ttl
		authorization-webhook-cache-unauthorized-ttl cpu-cfs-quota-period cpu-manager-reconcile-period
		eviction-pressure-transition-period file-check-frequency http-check-frequency
		minimum-container-ttl-duration minimum-image-ttl-duration node-status-update-frequency
		runtime-request-timeout streaming-connection-idle-timeout sync-frequency volume-stats-agg-period
		container-log-max-files event-burst event-qps eviction-max-pod-grace-period healthz-port
		image-gc-high-threshold image-gc-low-threshold kube-api-burst kube-api-qps max-pods
		maximum-dead-containers maximum-dead-containers-per-container node-status-max-images oom-score-adj
		pods-per-core port read-only-port registry-burst registry-qps max-open-files pod-max-pids
		allowed-unsafe-sysctls cluster-dns enforce-node-allocatable tls-cipher-suites authorization-mode
		cgroup-driver cgroup-root client-ca-file cluster-domain config-dir container-log-max-size
		container-runtime-endpoint cpu-manager-policy experimental-mounter-path hairpin-mode
		image-credential-provider-bin-dir image-credential-provider-config image-service-endpoint
		kube-api-content-type kube-reserved-cgroup kubelet-cgroups lock-file manifest-url
		memory-manager-policy pod-cidr pod-manifest-path provider-id reserved-cpus resolv-conf root-dir
		runtime-cgroups system-cgroups system-reserved-cgroup tls-cert-file tls-min-version
		tls-private-key-file topology-manager-policy topology-manager-scope volume-plugin-dir
		windows-priorityclass address cpu-manager-policy-options eviction-hard eviction-minimum-reclaim
		eviction-soft eviction-soft-grace-period feature-gates healthz-bind-address kube-reserved
		manifest-url-header qos-reserved register-with-taints reserved-memory system-reserved
		topology-manager-policy-options v vmodule logging-format log-flush-frequency
		log-json-info-buffer-size log-text-info-buffer-size`
)

func parseKubeletFlags(args []string) (kubeletFlags, error) {
	flags := newFlags("kubelet")
	var f kubeletFlags
	var nodeLabels, nodeIP string
	flags.StringVar(&f.config, "config", "", "")
	flags.StringVar(&f.bootstrapKubeconfig, "bootstrap-kubeconfig", "", "")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "")
	flags.StringVar(&f.certDir, "cert-dir", `C:\var\lib\kubelet\pki`, "")
	flags.StringVar(&nodeLabels, "node-labels", "", "")
	flags.StringVar(&nodeIP, "node-ip", "", "")
	flags.StringVar(&f.hostname, "hostname-override", "", "")
	flags.StringVar(&f.cloudProvider, "cloud-provider", "", "")
	tolerate(flags, kubeletSwitches, kubeletValues)
	flags.SetNormalizeFunc(underscores)
	if err := parse(flags, args); err != nil {
		return kubeletFlags{}, err
	}
	f.certDir = strings.TrimRight(f.certDir, `\/`)
	var err error
	if f.labels, err = parseLabels(nodeLabels); err != nil {
		return kubeletFlags{}, err
	}
	if nodeIP != "" {
		if f.nodeIP, err = netip.ParseAddr(nodeIP); err != nil {
			return kubeletFlags{}, fmt.Errorf("bad --node-ip %q: %w", nodeIP, err)
		}
	}
	return f, nil
}

// The function underscores treats an underscore in a flag like a hyphen. All components of Kubernetes do this.
func underscores(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}

// parseLabels parses labels. It refuses labels that a kubelet may not set on its own Node. The API server would refuse
// them later.
func parseLabels(text string) (map[string]string, error) {
	set := labels.Set{}
	if text != "" {
		var err error
		if set, err = labels.ConvertSelectorToLabelsMap(text); err != nil {
			return nil, fmt.Errorf("parsing --node-labels: %w", err)
		}
	}
	for key := range set {
		namespace, _, prefixed := strings.Cut(key, "/")
		if prefixed && reserved(namespace) && !kubeletapis.IsKubeletLabel(key) {
			return nil, fmt.Errorf("unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: %s", key)
		}
	}
	return set, nil
}

func reserved(namespace string) bool {
	for _, domain := range []string{"kubernetes.io", "k8s.io"} {
		if namespace == domain || strings.HasSuffix(namespace, "."+domain) {
			return true
		}
	}
	return false
}
