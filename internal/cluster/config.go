package cluster

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1 "github.com/openshift/api/operator/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// singleton is the name of OpenShift's cluster-wide configuration objects. There is one object of each kind.
const singleton = "cluster"

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
	known, err := lastOf(ctx, &r.common, facts, named(r.Cached, singleton, nameInfrastructure),
		func(object *configv1.Infrastructure) (known part, err error) {
			var all []error
			if known.Platform = platform(object); known.Platform == "" {
				all = append(all, incomplete("%s has no status.platformStatus.type: the installation of the cluster "+
					"is not complete", nameInfrastructure))
			}
			if known.APIServer, err = blueprint.CanonicalAPIServer(object.Status.APIServerInternalURL); err != nil {
				all = append(all, incomplete("%s: status.apiServerInternalURI: %s", nameInfrastructure, err))
			}
			known.IPs = virtualIPs(object)
			return known, errors.Join(all...)
		})
	facts.Platform, facts.APIServer = known.Platform, known.APIServer
	reserve(facts, known.IPs...)
	return err
}

func platform(object *configv1.Infrastructure) contract.Platform {
	name := object.Status.Platform //nolint:staticcheck // the field that older clusters have
	if object.Status.PlatformStatus != nil && object.Status.PlatformStatus.Type != "" {
		name = object.Status.PlatformStatus.Type
	}
	return contract.Platform(strings.ToLower(string(name)))
}

// virtualIPs returns all IP addresses in the status.platformStatus of the Infrastructure. On every platform, these are
// addresses of the API server, of ingress or of DNS.
func virtualIPs(object *configv1.Infrastructure) (all []string) {
	if object.Status.PlatformStatus == nil {
		return nil
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object.Status.PlatformStatus)
	if err != nil {
		return nil
	}
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case string:
			if _, err := netip.ParseAddr(value); err == nil {
				all = append(all, value)
			}
		case []any:
			for _, one := range value {
				walk(one)
			}
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				walk(value[key])
			}
		}
	}
	walk(status)
	return all
}

func (r *Reader) network(ctx context.Context, facts *blueprint.Facts) error {
	known, err := lastOf(ctx, &r.common, facts, named(r.Cached, singleton, nameNetwork), readNetwork)
	facts.NetworkType, facts.ServiceNetwork = known.NetworkType, known.ServiceNetwork
	facts.ServiceNetworks, facts.PodNetworks = known.ServiceNetworks, known.PodNetworks
	return err
}

func readNetwork(object *configv1.Network) (known blueprint.Network, err error) {
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
		all = append(all, unsupported("%s: spec.serviceNetwork has no IPv4 prefix; Windows nodes need a prefix with "+
			"at least sixteen addresses", nameNetwork))
	}
	known.ServiceNetwork, known.ServiceNetworks = prefix, legal(object.Spec.ServiceNetwork)
	known.PodNetworks = legal(clusterNetworks)
	return known, errors.Join(all...)
}

// classE rejects networks that overlap 240.0.0.0/4, which Windows doesn't route. `what` is the setting's name.
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

// maxServiceBits is the longest prefix with room for a tenth address, which by convention is the cluster's DNS.
const maxServiceBits = 28

// serviceNetwork returns the first IPv4 prefix that is large enough for Windows nodes, and whether there is one.
func serviceNetwork(prefixes []string) (netip.Prefix, bool) {
	for _, text := range prefixes {
		if prefix, err := netip.ParsePrefix(text); err == nil && prefix.Addr().Is4() &&
			prefix.Bits() <= maxServiceBits {
			return prefix.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

func legal(prefixes []string) (all []netip.Prefix) {
	for _, text := range prefixes {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			all = append(all, prefix.Masked())
		}
	}
	return all
}

func (r *Reader) hybridOverlay(ctx context.Context, facts *blueprint.Facts) error {
	known, err := lastOf(ctx, &r.common, facts, named(r.Cached, singleton, nameOperatorNetwork), readOverlay)
	facts.HybridOverlay, facts.VXLANPort = known.HybridOverlay, known.VXLANPort
	facts.PodNetworks = append(facts.PodNetworks, known.PodNetworks...)
	return err
}

func readOverlay(object *operatorv1.Network) (known blueprint.Network, err error) {
	var overlay *operatorv1.HybridOverlayConfig
	if config := object.Spec.DefaultNetwork.OVNKubernetesConfig; config != nil {
		overlay = config.HybridOverlayConfig
	}
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
