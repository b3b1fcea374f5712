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

// Networks that can carry Windows nodes.
const (
	// NetworkOVNKubernetes has a hybrid overlay, which the operator connects nodes to.
	NetworkOVNKubernetes = "OVNKubernetes"
	// NetworkExternal means that somebody else brings CNI plugins and kube-proxy, such as pods that
	// run on the host. The operator installs neither.
	NetworkExternal = "External"
	// NetworkFlannel is flannel with its VXLAN backend. The operator runs flanneld on nodes.
	NetworkFlannel = "Flannel"
)

// CloudProviderExternal is the only cloud provider that a kubelet still knows.
const CloudProviderExternal = "external"

// Network is the cluster's network, as far as nodes have to know it.
type Network struct {
	// NetworkType is NetworkOVNKubernetes, NetworkExternal or NetworkFlannel; no other carries Windows
	// nodes.
	NetworkType string
	// ServiceNetwork is the IPv4 prefix of cluster IPs.
	ServiceNetwork netip.Prefix
	// ServiceNetworks are all prefixes of cluster IPs, those that Windows nodes don't use, too.
	ServiceNetworks []netip.Prefix
	// DNS is the address of the cluster's DNS service, where it was read; else ClusterDNS says it.
	DNS netip.Addr
	// Domain is the DNS domain of the cluster, where it was read; else ClusterDomain says it.
	Domain string
	// PodNetworks are the prefixes of which pods have their addresses.
	PodNetworks []netip.Prefix
	// Servers are addresses of the API servers, of ingress and of what is before them, as far as they are known
	// besides the API server's URL.
	Servers []netip.Addr
	// HybridOverlay says whether the network plugin has a hybrid overlay, and VXLANPort its port if
	// it isn't the usual one, else 0.
	HybridOverlay bool
	VXLANPort     uint16
	// Flannel is flannel's configuration on NetworkFlannel.
	Flannel Flannel
}

// Flannel is what of flannel's configuration nodes need.
type Flannel struct {
	// Network is the prefix of all pods.
	Network netip.Prefix
	// VNI is the number of the overlay network.
	VNI uint16
}

// podNetwork is the name of the HNS network of pods, where it is not the usual one.
func (n Network) podNetwork() string {
	if n.NetworkType == NetworkFlannel {
		return fmt.Sprintf("flannel.%d", n.Flannel.VNI)
	}
	return ""
}

// Facts are what nodes need to know about their cluster. A package that reads clusters fills them
// in; whatever it read is checked again here before it becomes part of a command or a file.
type Facts struct {
	Platform contract.Platform
	// APIServer is the URL by which nodes reach the API server: https, a host, optionally a port.
	APIServer string
	// KubernetesVersion is what the API server says of itself, such as v1.36.3.
	KubernetesVersion string
	Network
	// KubeletCA verifies the API server when it calls kubelets; BootstrapCA verifies the API server
	// itself. Both are PEM bundles.
	KubeletCA   string
	BootstrapCA string
	// CloudProvider is what Linux workers tell their kubelet: CloudProviderExternal, or empty.
	// Their --cloud-config is not read: it is for providers that were compiled into kubelet, which
	// has had none since 1.31 and no such flag since 1.34, and its file may hold credentials.
	CloudProvider string
	// CredentialProviders are how Linux workers' kubelets get image pull credentials from the
	// cloud, or nil.
	CredentialProviders *kubeletconfigv1.CredentialProviderConfig
	// Proxy is the cluster-wide proxy, if any, as Linux nodes have it.
	Proxy Proxy
	// WantsTrustedCA says that the cluster has a proxy or CAs for one, so that nodes need
	// the bundle that the cluster puts into contract.TrustedCAConfigMap.
	WantsTrustedCA bool
	// Trust are bundles of CAs that nodes are to trust for everything; RegistryTrust are
	// those for one registry each, by <host> or <host>:<port>.
	Trust         []Bundle
	RegistryTrust map[string]Bundle
	// Mirrors are the entries of all mirror sets, as users wrote them.
	Mirrors []mirror.Set
	// Registries is what the cluster says about registries apart from mirrors, as users wrote it.
	Registries contract.RegistrySources
	// PullSecret is the cluster's .dockerconfigjson, or nil when it never had one.
	PullSecret []byte
	// Rejected is what the reader of the cluster found and could not use. Lacks keep hosts from joining, but
	// not nodes from what is published, which needs none of what is lacking. Troubles keep no host from joining.
	Rejected, Lacks, Troubles []*contract.Problem
}

// MayJoin joins the problems that keep hosts from joining; nil when there are none.
func (f Facts) MayJoin() error { return contract.JoinProblems(f.Lacks) }

// Unknown joins why nobody can tell what is reserved, which those of Lacks say or a fact that can't be used; nil
// when all is known.
func (f Facts) Unknown() error {
	unknown := slices.DeleteFunc(slices.Clone(f.Lacks), func(p *contract.Problem) bool {
		return p.Reason != contract.ReasonClusterFactsIncomplete
	})
	if _, err := CanonicalAPIServer(f.APIServer); err != nil || !f.ServiceNetwork.IsValid() {
		unknown = append(unknown, contract.NewProblem(contract.ReasonClusterFactsIncomplete,
			"the URL of the API server or the prefix of services is not known"))
	}
	return contract.JoinProblems(unknown)
}

// Bundle is a bundle of CAs as somebody wrote it.
type Bundle struct {
	// Source names where it is from, for messages.
	Source string
	// PEM is its text, not yet checked.
	PEM []byte
	// Injected says that the cluster adds what Linux nodes trust by themselves, about 150 certificates
	// of which one expires now and then. Nobody can take it out.
	Injected bool
	// Pending says that there is no text yet, or none any more, though something names the bundle.
	// What nodes trust already stays until it is there.
	Pending bool
}

// Proxy is how nodes reach the world outside. Empty fields are not set on nodes.
type Proxy struct {
	HTTP, HTTPS, None string
}

// Func gives the proxy for a URL, nil for those that are reached directly.
func (p Proxy) Func() func(*url.URL) (*url.URL, error) {
	return (&httpproxy.Config{HTTPProxy: p.HTTP, HTTPSProxy: p.HTTPS, NoProxy: p.None}).ProxyFunc()
}

// clusterDNSHost is the host number of the DNS service in the service network, by OpenShift's
// convention.
const clusterDNSHost = 10

// ClusterDNS is the address of the cluster's DNS service: as it was read, or the tenth host of the
// service network.
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

// defaultDomain is OpenShift's, and that of other clusters where nobody chose one.
const defaultDomain = "cluster.local"

// ClusterDomain is the DNS domain in which the cluster's names of Services and pods are.
func (n Network) ClusterDomain() string { return cmp.Or(n.Domain, defaultDomain) }

// CheckDomain says what is wrong with the DNS domain of a cluster. Its error does not repeat it.
func CheckDomain(domain string) error {
	if len(validation.IsDNS1123Subdomain(domain)) > 0 {
		return errors.New("is no DNS name in lower case such as k8s.example.com")
	}
	return nil
}

// problems says which facts can't be used, as problems with the reasons of cluster facts.
func (f Facts) problems() (all []*contract.Problem) {
	incomplete := func(format string, args ...any) {
		all = append(all, contract.NewProblem(contract.ReasonClusterFactsIncomplete, format, args...))
	}
	unsupported := func(format string, args ...any) {
		all = append(all, contract.NewProblem(contract.ReasonNetworkUnsupported, format, args...))
	}
	if f.Platform == "" {
		incomplete("the cluster's platform is not known")
	}
	if _, err := CanonicalAPIServer(f.APIServer); err != nil {
		incomplete("URL of the API server: %s", err)
	}
	if err := CheckDomain(f.ClusterDomain()); err != nil {
		incomplete("the cluster's DNS domain %s", err)
	}
	for _, violation := range f.violations() {
		unsupported("%s", violation)
	}
	switch {
	case !f.ServiceNetwork.IsValid() || !f.ServiceNetwork.Addr().Is4():
		unsupported("the service network is not an IPv4 prefix")
	case !f.DNS.IsValid() && !f.ServiceNetwork.Contains(f.ClusterDNS()):
		unsupported("the service network %s has no tenth host for DNS", f.ServiceNetwork)
	}
	if f.CloudProvider != "" && f.CloudProvider != CloudProviderExternal {
		incomplete("workers use the cloud provider %.63q, which no supported kubelet has; only %q is left",
			f.CloudProvider, CloudProviderExternal)
	}
	for name, pem := range map[string]string{"kubelet's client CA": f.KubeletCA, "the API server's CA": f.BootstrapCA} {
		if !strings.Contains(pem, "-----BEGIN CERTIFICATE-----") {
			incomplete("%s is not a PEM bundle", name)
		}
	}
	return all
}

// violations say what of the network carries no Windows nodes.
func (n Network) violations() (all []string) {
	switch n.NetworkType {
	case NetworkExternal:
	case NetworkFlannel:
		if !n.Flannel.Network.IsValid() || !n.Flannel.Network.Addr().Is4() || n.Flannel.VNI == 0 {
			all = append(all, "flannel's network is not known")
		}
	default:
		if n.NetworkType != NetworkOVNKubernetes {
			all = append(all, fmt.Sprintf("the network type is %q, not %s", n.NetworkType, NetworkOVNKubernetes))
		}
		if !n.HybridOverlay {
			all = append(all, "the network has no hybrid overlay")
		}
	}
	return all
}

// maxAPIServer is what the WindowsMachineConfig takes.
const maxAPIServer = 512

// CanonicalAPIServer checks the URL of an API server and gives it in one form: https, host in lower
// case, port if there is one, nothing else.
func CanonicalAPIServer(raw string) (string, error) {
	if len(raw) > maxAPIServer {
		return "", fmt.Errorf("it is longer than %d characters", maxAPIServer)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return "", errors.New("it is not a URL") // it may have a password
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

// ReservedNames are what the API server is called: no host is.
func (f Facts) ReservedNames() []string {
	server, err := url.Parse(f.APIServer)
	if err != nil || server.Hostname() == "" {
		return nil
	}
	name := strings.ToLower(server.Hostname())
	if domain, found := strings.CutPrefix(name, "api-int."); found {
		return []string{name, "api." + domain} // within OpenShift, and from outside
	}
	return []string{name}
}

// Reserved are addresses that no host has: those of pods and services, and those of the API server and ingress.
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
