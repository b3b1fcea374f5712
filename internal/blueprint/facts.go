package blueprint

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpproxy"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// Supported networks of Windows nodes.
const (
	// NetworkOVNKubernetes is OVN-Kubernetes with a hybrid overlay. The operator connects nodes to the hybrid overlay.
	NetworkOVNKubernetes = "OVNKubernetes"
	// NetworkExternal means that the user provides CNI plugins and kube-proxy, for example with host-process
	// pods. The operator installs neither.
	NetworkExternal = "External"
	// NetworkFlannel is flannel with its VXLAN backend. The operator runs flanneld on nodes.
	NetworkFlannel = "Flannel"
)

// CloudProviderExternal is the only cloud provider that kubelet still supports.
const CloudProviderExternal = "external"

// Network is the part of the cluster's network configuration that nodes need.
type Network struct {
	// NetworkType is NetworkOVNKubernetes, NetworkExternal or NetworkFlannel.
	NetworkType string
	// ServiceNetwork is the IPv4 prefix of cluster IPs.
	ServiceNetwork netip.Prefix
	// ServiceNetworks are all prefixes of cluster IPs, including those that Windows nodes don't use.
	ServiceNetworks []netip.Prefix
	// DNS is the address of the cluster's DNS service. If unset, ClusterDNS derives it from ServiceNetwork.
	DNS netip.Addr
	// Domain is the cluster's DNS domain. If Domain is empty, ClusterDomain returns the default.
	Domain string
	// PodNetworks are the prefixes of pod addresses.
	PodNetworks []netip.Prefix
	// Servers are the known addresses of API servers, of ingress and of their load balancers. If the API server's URL
	// contains an address, Servers may lack this address.
	Servers []netip.Addr
	// HybridOverlay: the network plugin has a hybrid overlay. VXLANPort is the overlay's port, or 0 for the default.
	HybridOverlay bool
	VXLANPort     uint16
	Flannel       Flannel
}

// Flannel is the part of flannel's configuration that nodes need.
type Flannel struct {
	// Network is the prefix of all pods.
	Network netip.Prefix
	VNI     uint16
}

// podNetwork returns the name of the pod network in the Host Networking Service (HNS), or "" for the default name.
func (n Network) podNetwork() string {
	if n.NetworkType == NetworkFlannel {
		return fmt.Sprintf("flannel.%d", n.Flannel.VNI)
	}
	return ""
}

// Facts contains what nodes need to know about their cluster. A package that reads clusters fills in the fields, and
// checks every fact that becomes part of a command or a file. Render checks the fields whose comments say unchecked.
type Facts struct {
	Platform contract.Platform
	// APIServer is the URL of the API server for nodes: https, a host, optionally a port.
	APIServer string
	// KubernetesVersion is the version that the API server reports, such as v1.36.3.
	KubernetesVersion string
	Network
	// KubeletCA verifies the client certificate of an API server that connects to kubelet. BootstrapCA verifies the
	// serving certificate of the API server. Both are PEM bundles.
	KubeletCA   string
	BootstrapCA string
	// CloudProvider is the --cloud-provider of Linux workers: CloudProviderExternal, or empty. The operator ignores
	// their --cloud-config, which only configured the cloud providers that Kubernetes 1.31 removed from kubelet.
	CloudProvider string
	// CredentialProviders is kubelet's configuration of credential providers on Linux workers, which get image pull
	// credentials from the cloud. It is nil if Linux workers have none.
	CredentialProviders *kubeletconfigv1.CredentialProviderConfig
	// Proxy is the cluster-wide proxy of Linux nodes, if any.
	Proxy Proxy
	// InjectsCA reports that the cluster puts the CAs of its proxy into contract.TrustedCAConfigMap.
	InjectsCA bool
	// Trust contains CA bundles that nodes trust for everything. RegistryTrust contains CA bundles for single
	// registries. The key is the registry's <host> or <host>:<port>.
	Trust         []Bundle
	RegistryTrust map[string]Bundle
	// Mirrors are the entries of all mirror sets, unchecked.
	Mirrors []mirror.Set
	// Registries are the cluster's other registry settings, unchecked.
	Registries contract.RegistrySources
	// PullSecret is the cluster's .dockerconfigjson, or nil if the cluster never had one.
	PullSecret []byte
	// Rejected lists existing but unusable facts: nodes don't get them. Lacks lists missing facts that only joins need:
	// nodes that have joined still get changes. Troubles lists problems that prevent neither joins nor changes.
	Rejected, Lacks, Troubles []*contract.Problem
}

// MayJoin joins the problems that keep hosts from joining, or returns nil.
func (f Facts) MayJoin() error { return contract.JoinProblems(f.Lacks) }

// Unknown returns an error if ReservedNames and Reserved return incomplete results, because facts are missing. The
// error joins a problem for each missing fact.
func (f Facts) Unknown() error {
	unknown := slices.DeleteFunc(slices.Clone(f.Lacks), func(p *contract.Problem) bool {
		return p.Reason != contract.ReasonClusterFactsIncomplete
	})
	if f.APIServer == "" || !f.ServiceNetwork.IsValid() {
		unknown = append(unknown, contract.NewProblem(contract.ReasonClusterFactsIncomplete,
			"the URL of the API server or the prefix of services is not known"))
	}
	return contract.JoinProblems(unknown)
}

// Bundle is an unchecked CA bundle.
type Bundle struct {
	Source string
	PEM    []byte
	// Injected reports that the cluster injects the default trust of Linux nodes into the bundle: about 150
	// certificates. Render doesn't report expired certificates of such a bundle, because users can't remove them.
	Injected bool
	// Pending reports that a setting refers to the bundle, but the bundle's text is missing. While the text is missing,
	// nodes keep the certificates that they already trust.
	Pending bool
}

// Proxy is the nodes' HTTP proxy. If a field is empty, its environment variable is not set on nodes.
type Proxy struct {
	HTTP, HTTPS, None string
}

// Func returns a function that returns the proxy for a URL, or nil if requests to the URL use no proxy.
func (p Proxy) Func() func(*url.URL) (*url.URL, error) {
	return (&httpproxy.Config{HTTPProxy: p.HTTP, HTTPSProxy: p.HTTPS, NoProxy: p.None}).ProxyFunc()
}

// clusterDNSHost is the DNS service's host number in the service network, by OpenShift's convention.
const clusterDNSHost = 10

// ClusterDNS returns the address of the cluster's DNS service. If the facts don't contain the address, ClusterDNS
// returns the tenth address after the start of the service network.
func (f Facts) ClusterDNS() netip.Addr {
	if f.DNS.IsValid() {
		return f.DNS
	}
	address := f.ServiceNetwork.Masked().Addr()
	for range clusterDNSHost {
		address = address.Next()
	}
	return address
}

// defaultDomain is the domain of OpenShift, and the default of other clusters.
const defaultDomain = "cluster.local"

// ClusterDomain returns the DNS domain of the cluster's Services and pods.
func (n Network) ClusterDomain() string { return cmp.Or(n.Domain, defaultDomain) }

// CheckDomain returns an error if a cluster's DNS domain is invalid. The error doesn't repeat the domain.
func CheckDomain(domain string) error {
	if len(validation.IsDNS1123Subdomain(domain)) > 0 {
		return errors.New("is not a DNS name in lower case such as k8s.example.com")
	}
	return nil
}

// maxAPIServer is the maximum length of the URL, in bytes. The WindowsMachineConfig's schema has the same limit.
const maxAPIServer = 512

// CanonicalAPIServer checks and normalises an API server's URL: https, the host in lower case, an optional port.
func CanonicalAPIServer(raw string) (string, error) {
	if len(raw) > maxAPIServer {
		return "", fmt.Errorf("it is longer than %d characters", maxAPIServer)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", errors.New("it is not a URL") // the error must not repeat a password
	}
	if u.Scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" ||
		u.Fragment != "" || u.Opaque != "" {
		return "", fmt.Errorf("%q is not https://<host>:<port>", u.Redacted())
	}
	host := strings.ToLower(u.Hostname())
	if address, err := netip.ParseAddr(host); (err != nil && len(validation.IsDNS1123Subdomain(host)) > 0) ||
		address.Zone() != "" {
		return "", fmt.Errorf("%q has no legal host", u.Redacted())
	}
	if u.Port() == "" {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return "https://" + host, nil
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); err != nil || port == 0 {
		return "", fmt.Errorf("%q has no legal port", u.Redacted())
	}
	return "https://" + net.JoinHostPort(host, u.Port()), nil
}

// ReservedNames returns the names of the API server, which no host may use.
func (f Facts) ReservedNames() []string {
	server, err := url.Parse(f.APIServer)
	if err != nil || server.Hostname() == "" {
		return nil
	}
	name := strings.ToLower(server.Hostname())
	if domain, found := strings.CutPrefix(name, "api-int."); found {
		return []string{name, "api." + domain} // inside OpenShift, and outside
	}
	return []string{name}
}

// Reserved returns the addresses that no host may have: of the API server, of ingress, of pods and of Services.
func (f Facts) Reserved() []netip.Prefix {
	servers := slices.Clone(f.Servers)
	if server, err := url.Parse(f.APIServer); err == nil {
		if address, err := netip.ParseAddr(server.Hostname()); err == nil {
			servers = append(servers, address)
		}
	}
	reserved := slices.Concat(f.PodNetworks, f.ServiceNetworks)
	for _, address := range servers {
		reserved = append(reserved, netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()))
	}
	return reserved
}
