package program

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	kubeproxyconfigv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// kubeProxy validates its configuration. If necessary, it creates the endpoint with its source address. It reads the
// same objects as the real kube-proxy, but creates no network rules.
func (o Options) kubeProxy(ctx context.Context, p *sim.Process) int {
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
	checked, err := checkKubeProxyConfig(p.Host.Files, *config)
	if err != nil {
		return refuse(p, fmt.Errorf("reading kube-proxy's configuration: %w", err))
	}
	kubeconfig := checked.ClientConnection.Kubeconfig
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
	var group sync.WaitGroup
	group.Go(func() { readServices(ctx, p, server) })
	group.Go(func() { o.sourceVIP(ctx, p, checked.Winkernel) })
	defer group.Wait()
	return idle{name: "kube-proxy"}.run(ctx, p)
}

// readServices uses kube-proxy's rights to read the objects for which the real kube-proxy creates network rules. After
// an error, it tries again, like a reflector.
func readServices(ctx context.Context, p *sim.Process, server *access) {
	_, log := withLog(ctx, p.Stderr, p.Host.System.Now)
	backoff := wait.Backoff{Duration: time.Second, Factor: 2, Steps: 30, Cap: 30 * time.Second}
	_ = backoff.DelayFunc().Until(ctx, true, false, func(ctx context.Context) (bool, error) {
		_, services := server.client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
		_, slices := server.client.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
		if err := errors.Join(services, slices); err != nil {
			log.Info("failed to list the Services and endpoints", "err", err.Error())
			return false, nil
		}
		log.Info("services are known")
		return true, nil
	})
}

// sourceVIP waits until the network exists. Then it checks at intervals of ProxyStart: if no endpoint has the source
// address in the configuration, it creates an unnamed local endpoint (kubernetes 1.36, pkg/proxy/winkernel/proxier.go,
// newProxierInternal and newSourceVIP). It doesn't attach the endpoint to the host.
func (o Options) sourceVIP(ctx context.Context, p *sim.Process,
	config kubeproxyconfigv1alpha1.KubeProxyWinkernelConfiguration) {
	address, err := netip.ParseAddr(config.SourceVip)
	if err != nil || p.Machine == nil { // in Wine, there is no simulated machine
		return
	}
	_, log := withLog(ctx, p.Stderr, p.Host.System.Now)
	_ = wait.PollUntilContextCancel(ctx, o.Poll, true, func(context.Context) (bool, error) {
		_, err := p.Machine.HNSEndpoints(config.NetworkName)
		return err == nil, nil
	})
	_ = wait.PollUntilContextCancel(ctx, o.ProxyStart, false, func(context.Context) (bool, error) {
		there, err := p.Machine.HNSEndpoints(config.NetworkName)
		if err == nil && !slices.ContainsFunc(there, func(e sim.HNSEndpoint) bool { return e.Address == address }) {
			err = p.Machine.AddHNSEndpoint(config.NetworkName, sim.HNSEndpoint{Address: address})
			log.Info("made the endpoint of the source address", "address", address, "err", err)
		}
		return false, nil
	})
}

func checkKubeProxyConfig(files winos.Files,
	path string) (config kubeproxyconfigv1alpha1.KubeProxyConfiguration, err error) {
	content, err := winos.ReadFile(files, path)
	if err != nil {
		return config, err
	}
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return config, fmt.Errorf("%s: %w", path, err)
	}
	if config.APIVersion != kubeproxyconfigv1alpha1.SchemeGroupVersion.String() ||
		config.Kind != "KubeProxyConfiguration" {
		return config, fmt.Errorf("%s: no kind %q is registered for version %q", path, config.Kind, config.APIVersion)
	}
	if config.Mode != "kernelspace" {
		return config, fmt.Errorf("%s: mode: Unsupported value: %q", path, config.Mode)
	}
	if _, err := netip.ParsePrefix(config.ClusterCIDR); config.ClusterCIDR != "" && err != nil {
		return config, fmt.Errorf("%s: clusterCIDR: %w", path, err)
	}
	if config.Winkernel.NetworkName == "" {
		return config, fmt.Errorf("%s: environment variable KUBE_NETWORK and network-flag not initialized", path)
	}
	if _, err := netip.ParseAddr(config.Winkernel.SourceVip); err != nil {
		return config, fmt.Errorf("%s: source-vip flag is required with overlay networks: %w", path, err)
	}
	return config, nil
}
