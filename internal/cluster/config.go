package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// singleton is the name of OpenShift's configuration objects.
const singleton = "cluster"

// How error texts name the objects.
const (
	nameInfrastructure  = "the Infrastructure cluster"
	nameNetwork         = "the Network cluster of config.openshift.io"
	nameOperatorNetwork = "the Network cluster of operator.openshift.io"
)

func (r *Reader) infrastructure(ctx context.Context, facts *blueprint.Facts) error {
	type part struct {
		Platform  contract.Platform
		APIServer string
		IPs       []string
	}
	known, err := last(ctx, &r.common, facts, nameInfrastructure, func() (known part, err error) {
		var object configv1.Infrastructure
		if err = get(ctx, r.Cached, &object, client.ObjectKey{Name: singleton}, nameInfrastructure); err != nil {
			return known, err
		}
		var all []error
		if known.Platform = platform(&object); known.Platform == "" {
			all = append(all, incomplete("%s has no status.platformStatus.type: the installation of the cluster is "+
				"not "+
				"complete", nameInfrastructure))
		}
		if known.APIServer, err = blueprint.CanonicalAPIServer(object.Status.APIServerInternalURL); err != nil {
			all = append(all, incomplete("%s: status.apiServerInternalURI: %s", nameInfrastructure, err))
		}
		known.IPs = virtualIPs(&object)
		return known, errors.Join(all...)
	})
	facts.Platform, facts.APIServer = known.Platform, known.APIServer
	reserve(facts, known.IPs...)
	return err
}

// Platform implements Kind.
func (r *Reader) Platform(ctx context.Context) (contract.Platform, error) {
	var facts blueprint.Facts
	if err := r.infrastructure(ctx, &facts); facts.Platform == "" {
		return "", err
	}
	return facts.Platform, nil
}

func platform(object *configv1.Infrastructure) contract.Platform {
	name := object.Status.Platform //nolint:staticcheck // the field that older clusters have
	if object.Status.PlatformStatus != nil && object.Status.PlatformStatus.Type != "" {
		name = object.Status.PlatformStatus.Type
	}
	return contract.Platform(strings.ToLower(string(name)))
}

// platformIPs are the addresses of the API server and ingress in the status of a platform, under the names that all
// platforms have for them.
type platformIPs struct {
	APIServer    string   `json:"apiServerInternalIP"`
	APIServers   []string `json:"apiServerInternalIPs"`
	Ingress      string   `json:"ingressIP"`
	Ingresses    []string `json:"ingressIPs"`
	LoadBalancer struct {
		IPs struct {
			Internal []string `json:"apiIntLoadBalancerIPs"`
			External []string `json:"apiLoadBalancerIPs"`
			Ingress  []string `json:"ingressLoadBalancerIPs"`
		} `json:"clusterHosted"`
	} `json:"cloudLoadBalancerConfig"`
}

// virtualIPs are the addresses of the API server and ingress that the installation gave them, on whatever platform.
func virtualIPs(object *configv1.Infrastructure) (all []string) {
	var platforms map[string]json.RawMessage
	if text, err := json.Marshal(object.Status.PlatformStatus); err != nil || json.Unmarshal(text, &platforms) != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(platforms)) {
		var ips platformIPs
		if json.Unmarshal(platforms[name], &ips) != nil {
			continue // the platform's name
		}
		balanced := ips.LoadBalancer.IPs
		all = slices.Concat(all, []string{ips.APIServer, ips.Ingress}, ips.APIServers, ips.Ingresses, balanced.Internal,
			balanced.External, balanced.Ingress)
	}
	return all
}

func (r *Reader) network(ctx context.Context, facts *blueprint.Facts) error {
	known, err := last(ctx, &r.common, facts, nameNetwork, func() (blueprint.Network, error) {
		return r.readNetwork(ctx)
	})
	facts.NetworkType, facts.ServiceNetwork = known.NetworkType, known.ServiceNetwork
	facts.ServiceNetworks, facts.PodNetworks = known.ServiceNetworks, known.PodNetworks
	return err
}

func (r *Reader) readNetwork(ctx context.Context) (known blueprint.Network, err error) {
	var object configv1.Network
	if err = get(ctx, r.Cached, &object, client.ObjectKey{Name: singleton}, nameNetwork); err != nil {
		return known, err
	}
	var all []error
	switch known.NetworkType = object.Spec.NetworkType; known.NetworkType {
	case blueprint.NetworkOVNKubernetes:
	case "":
		return known, incomplete("%s has no spec.networkType", nameNetwork)
	default:
		all = append(all, unsupported("%s: spec.networkType is %q; Windows nodes need %s", nameNetwork,
			known.NetworkType, blueprint.NetworkOVNKubernetes))
	}
	clusterNetworks := make([]string, len(object.Spec.ClusterNetwork))
	for i, entry := range object.Spec.ClusterNetwork {
		clusterNetworks[i] = entry.CIDR
	}
	all = append(all, classE(nameNetwork+": spec.serviceNetwork", object.Spec.ServiceNetwork),
		classE(nameNetwork+": spec.clusterNetwork", clusterNetworks))
	prefix, ok := serviceNetwork(object.Spec.ServiceNetwork)
	if !ok {
		all = append(all, unsupported("%s: spec.serviceNetwork has no IPv4 prefix; Windows nodes need one of at "+
			"least sixteen addresses", nameNetwork))
	}
	known.ServiceNetwork, known.ServiceNetworks = prefix, legal(object.Spec.ServiceNetwork)
	known.PodNetworks = legal(clusterNetworks)
	return known, errors.Join(all...)
}

// classE refuses networks in 240.0.0.0/4: Windows routes nothing to or from them.
func classE(what string, networks []string) error {
	reserved := netip.PrefixFrom(netip.AddrFrom4([4]byte{240}), 4)
	for _, text := range networks {
		if network, err := netip.ParsePrefix(text); err == nil && network.Overlaps(reserved) && network.Bits() > 0 {
			return unsupported("%s has %s, which is in 240.0.0.0/4 (class E); Windows has no use for such addresses",
				what, network)
		}
	}
	return nil
}

// minServiceBits leaves room for the tenth host.
const minServiceBits = 28

// serviceNetwork is the first prefix that Windows nodes can use: they know IPv4 only.
func serviceNetwork(prefixes []string) (netip.Prefix, bool) {
	for _, text := range prefixes {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr().Is4() &&
			prefix.Bits() <= minServiceBits {
			return prefix.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// legal are those of the prefixes that can be read.
func legal(prefixes []string) (all []netip.Prefix) {
	for _, text := range prefixes {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all
}

func (r *Reader) hybridOverlay(ctx context.Context, facts *blueprint.Facts) error {
	known, err := last(ctx, &r.common, facts, nameOperatorNetwork, func() (blueprint.Network, error) {
		return r.readOverlay(ctx)
	})
	facts.HybridOverlay, facts.VXLANPort = known.HybridOverlay, known.VXLANPort
	facts.PodNetworks = append(facts.PodNetworks, known.PodNetworks...)
	return err
}

func (r *Reader) readOverlay(ctx context.Context) (known blueprint.Network, err error) {
	var object operatorv1.Network
	if err = get(ctx, r.Cached, &object, client.ObjectKey{Name: singleton}, nameOperatorNetwork); err != nil {
		return known, err
	}
	overlay := overlayOf(&object)
	if overlay == nil || len(overlay.HybridClusterNetwork) == 0 {
		return known, unsupported("%s: spec.defaultNetwork.ovnKubernetesConfig.hybridOverlayConfig has no "+
			"hybridClusterNetwork; give it one, such as 10.132.0.0/14 with host prefix 23",
			nameOperatorNetwork)
	}
	hybrid := make([]string, len(overlay.HybridClusterNetwork))
	for i, entry := range overlay.HybridClusterNetwork {
		hybrid[i] = entry.CIDR
	}
	if err = classE(nameOperatorNetwork+": hybridClusterNetwork", hybrid); err != nil {
		return known, err
	}
	known.HybridOverlay, known.PodNetworks = true, legal(hybrid)
	if port := overlay.HybridOverlayVXLANPort; port != nil {
		if *port == 0 || *port > math.MaxUint16 {
			return known, unsupported("%s: hybridOverlayVXLANPort is %d, which is no port", nameOperatorNetwork, *port)
		}
		known.VXLANPort = uint16(*port)
	}
	return known, nil
}

func overlayOf(object *operatorv1.Network) *operatorv1.HybridOverlayConfig {
	if object.Spec.DefaultNetwork.OVNKubernetesConfig == nil {
		return nil
	}
	return object.Spec.DefaultNetwork.OVNKubernetesConfig.HybridOverlayConfig
}
