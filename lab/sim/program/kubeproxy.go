package program

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeproxyconfigv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// kubeProxy checks its configuration, reads what it would program, and programs nothing.
func kubeProxy(ctx context.Context, p *sim.Process) int {
	flags := newFlags("kube-proxy")
	config := flags.String("config", "", "")
	tolerate(flags, "windows-service", "v vmodule hostname-override kubeconfig cluster-cidr proxy-mode "+
		"feature-gates logging-format")
	if err := parse(flags, p.Args[1:]); err != nil {
		return refuse(p, err)
	}
	if *config == "" {
		return refuse(p, errors.New("no configuration has been provided: --config is needed"))
	}
	kubeconfig, err := checkKubeProxyConfig(p.Host.Files, *config)
	if err != nil {
		return refuse(p, fmt.Errorf("reading kube-proxy's configuration: %w", err))
	}
	client, err := loadKubeconfig(p.Host.Files, kubeconfig)
	if err != nil {
		return refuse(p, fmt.Errorf("reading kube-proxy's configuration: %w", err))
	}
	identity := followed{files: p.Host.Files, kubeconfig: kubeconfig}
	server, err := connect(client, "kube-proxy", p.Host.System.Now, identity.get)
	if err != nil {
		return refuse(p, err)
	}
	defer server.close()
	reading := make(chan struct{})
	go func() {
		defer close(reading)
		readServices(ctx, p, server)
	}()
	defer func() { <-reading }()
	return idle{name: "kube-proxy"}.run(ctx, p)
}

// readServices tries until it has read what kube-proxy programs, as a reflector does, with what it
// may do and no more.
func readServices(ctx context.Context, p *sim.Process, server *access) {
	_, log := withLog(ctx, p.Stderr, p.Host.System.Now)
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 30, Cap: 30 * time.Second}
	_ = backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		_, services := server.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		_, slices := server.client.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
		if err := errors.Join(services, slices); err != nil {
			log.Info("failed to list what is to be programmed", "err", err.Error())
			return false, nil
		}
		log.Info("services are known")
		return true, nil
	})
}

// checkKubeProxyConfig answers the kubeconfig.
func checkKubeProxyConfig(files winos.Files, path string) (kubeconfig string, err error) {
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return "", err
	}
	var config kubeproxyconfigv1alpha1.KubeProxyConfiguration
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if config.APIVersion != kubeproxyconfigv1alpha1.SchemeGroupVersion.String() ||
		config.Kind != "KubeProxyConfiguration" {
		return "", fmt.Errorf("%s: no kind %q is registered for version %q", path, config.Kind, config.APIVersion)
	}
	if config.Mode != "kernelspace" {
		return "", fmt.Errorf("%s: mode: Unsupported value: %q", path, config.Mode)
	}
	if _, err := netip.ParsePrefix(config.ClusterCIDR); config.ClusterCIDR != "" && err != nil {
		return "", fmt.Errorf("%s: clusterCIDR: %w", path, err)
	}
	if config.Winkernel.NetworkName == "" {
		return "", fmt.Errorf("%s: environment variable KUBE_NETWORK and network-flag not initialized", path)
	}
	if _, err := netip.ParseAddr(config.Winkernel.SourceVip); err != nil {
		return "", fmt.Errorf("%s: source-vip flag is required with overlay networks: %w", path, err)
	}
	return config.ClientConnection.Kubeconfig, nil
}
