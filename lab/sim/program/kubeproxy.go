package program

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	kubeproxyconfigv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// kubeProxy checks its configuration and then programs nothing.
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
	if err := checkKubeProxyConfig(p.Host.Files, *config); err != nil {
		return refuse(p, fmt.Errorf("reading kube-proxy's configuration: %w", err))
	}
	return idle{name: "kube-proxy"}.run(ctx, p)
}

func checkKubeProxyConfig(files winos.Files, path string) error {
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return err
	}
	var config kubeproxyconfigv1alpha1.KubeProxyConfiguration
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if config.APIVersion != kubeproxyconfigv1alpha1.SchemeGroupVersion.String() ||
		config.Kind != "KubeProxyConfiguration" {
		return fmt.Errorf("%s: no kind %q is registered for version %q", path, config.Kind, config.APIVersion)
	}
	if config.Mode != "kernelspace" {
		return fmt.Errorf("%s: mode: Unsupported value: %q", path, config.Mode)
	}
	if _, err := netip.ParsePrefix(config.ClusterCIDR); config.ClusterCIDR != "" && err != nil {
		return fmt.Errorf("%s: clusterCIDR: %w", path, err)
	}
	if config.Winkernel.NetworkName == "" {
		return fmt.Errorf("%s: environment variable KUBE_NETWORK and network-flag not initialized", path)
	}
	if _, err := netip.ParseAddr(config.Winkernel.SourceVip); err != nil {
		return fmt.Errorf("%s: source-vip flag is required with overlay networks: %w", path, err)
	}
	_, err = loadKubeconfig(files, config.ClientConnection.Kubeconfig)
	return err
}
