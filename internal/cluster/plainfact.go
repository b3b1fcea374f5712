package cluster

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
)

const (
	rootCAKey          = "ca.crt"
	clientCAKey        = "client-ca-file"
	kubeadmKey         = "ClusterConfiguration"
	nameClusterInfo    = "the ConfigMap kube-public/cluster-info"
	nameAuthentication = "the ConfigMap kube-system/extension-apiserver-authentication"
	nameServiceCIDR    = "the ServiceCIDR kubernetes"
	nameKubeadm        = "the ConfigMap kube-system/kubeadm-config"
	settingDomain      = "spec.network.clusterDomain of the WindowsMachineConfig"
	settingNetwork     = "spec.network.type of the WindowsMachineConfig"
	nameDNS            = "the Service with label k8s-app=kube-dns in kube-system"
)

// maxKubeadm is the maximum size in bytes of kubeadm's ClusterConfiguration. kubeadm itself writes about 2 KiB.
const maxKubeadm = 64 << 10

func keyIn(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// apiServer reads the URL of the API server from the settings, or else from kubeadm's ConfigMap for joining nodes.
func (p *Plain) apiServer(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec,
	facts *blueprint.Facts) (err error) {
	const orSet = "; or set spec.apiServer of the WindowsMachineConfig to the URL where hosts reach the API server"
	if spec.APIServer != "" {
		if facts.APIServer, err = blueprint.CanonicalAPIServer(spec.APIServer); err != nil {
			return incomplete("spec.apiServer of the WindowsMachineConfig: %s", err)
		}
		return nil
	}
	facts.APIServer, err = last(ctx, &p.common, facts, nameClusterInfo, func() (server string, err error) {
		var object corev1.ConfigMap
		err = get(ctx, p.Live, &object, keyIn(metav1.NamespacePublic, "cluster-info"), nameClusterInfo)
		switch {
		case isAbsent(err):
			return "", incomplete("%s does not exist: make it with `kubeadm init phase bootstrap-token`"+orSet,
				nameClusterInfo)
		case err != nil:
			return "", err
		}
		// Don't return the parser's error, because it would repeat the content.
		config, err := clientcmd.Load([]byte(object.Data["kubeconfig"]))
		if err != nil || len(config.Clusters) != 1 {
			return "", incomplete("%s: kubeconfig names no cluster, or several: correct it"+orSet, nameClusterInfo)
		}
		for _, c := range config.Clusters {
			if server, err = blueprint.CanonicalAPIServer(c.Server); err != nil {
				return "", incomplete("%s: server of the kubeconfig: %s: correct it"+orSet, nameClusterInfo, err)
			}
		}
		return server, nil
	})
	return err
}

// serverCA reads the CA that verifies the API server, from a ConfigMap that every namespace has.
func (p *Plain) serverCA(ctx context.Context, _ v1alpha1.WindowsMachineConfigSpec,
	facts *blueprint.Facts) (err error) {
	name := "the ConfigMap " + p.Namespace + "/kube-root-ca.crt"
	key := keyIn(p.Namespace, "kube-root-ca.crt")
	facts.BootstrapCA, err = lastOf(ctx, &p.common, facts, origin{p.Cached, key, name},
		func(object *corev1.ConfigMap) (string, error) {
			return bundleOf([]byte(object.Data[rootCAKey]), name, rootCAKey,
				"see whether kube-controller-manager runs with --root-ca-file")
		})
	return err
}

// clientCA reads the CA of the client certificate that the API server uses for kubelets. serverCA may read another CA.
func (p *Plain) clientCA(ctx context.Context, _ v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) (err error) {
	key := keyIn(metav1.NamespaceSystem, "extension-apiserver-authentication")
	facts.KubeletCA, err = lastOf(ctx, &p.common, facts, origin{p.Live, key, nameAuthentication},
		func(object *corev1.ConfigMap) (string, error) {
			return bundleOf([]byte(object.Data[clientCAKey]), nameAuthentication, clientCAKey,
				"see whether kube-apiserver runs with --client-ca-file")
		})
	return err
}

type kubeadmNetworks struct {
	Networking struct {
		ServiceSubnet string `json:"serviceSubnet"`
		PodSubnet     string `json:"podSubnet"`
		DNSDomain     string `json:"dnsDomain"`
	} `json:"networking"`
}

// networks reads the prefixes of Services. It also reads the prefixes of pods and the DNS domain, if kubeadm's
// configuration contains them.
func (p *Plain) networks(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	key := keyIn(metav1.NamespaceSystem, "kubeadm-config")
	kubeadm, err := orNone(lastOf(ctx, &p.common, facts, origin{p.Live, key, nameKubeadm}, parseKubeadm))
	if err != nil {
		return err
	}
	if err = p.readDomain(ctx, spec, kubeadm, facts); err != nil {
		return err
	}
	own, err := p.ownServices(ctx, facts)
	if err != nil {
		return err
	}
	where, prefixes := nameServiceCIDR, own
	if len(own) == 0 {
		where, prefixes = nameKubeadm, split(kubeadm.Networking.ServiceSubnet)
	}
	if len(prefixes) == 0 {
		return errors.Join(facts.MayJoin(),
			incomplete("the prefix of services is not known: neither %s nor %s has it", nameServiceCIDR, nameKubeadm))
	}
	prefix, ok := serviceNetwork(prefixes)
	if !ok {
		return errors.Join(classE(where, prefixes),
			unsupported("%s has no IPv4 prefix of services; Windows nodes need a prefix with at least sixteen "+
				"addresses",
				where))
	}
	facts.ServiceNetwork, facts.ServiceNetworks = prefix, legal(prefixes)
	if err = p.serviceCIDRs(ctx, facts); err != nil {
		return err
	}
	facts.PodNetworks = legal(split(kubeadm.Networking.PodSubnet))
	return errors.Join(classE(where, prefixes), classE(nameKubeadm+": podSubnet", split(kubeadm.Networking.PodSubnet)))
}

// readDomain uses the DNS domain in the settings, or else the domain in kubeadm's configuration. If the domain changed,
// all nodes would be drained, and new pods would find no Service by its short name. So if kubeadm's configuration no
// longer contains a domain, the last known domain stays in force.
func (p *Plain) readDomain(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec, kubeadm kubeadmNetworks,
	facts *blueprint.Facts) (err error) {
	if facts.Domain = spec.Network.ClusterDomain; facts.Domain != "" {
		if err = blueprint.CheckDomain(facts.Domain); err != nil {
			return incomplete("%s %s", settingDomain, err)
		}
		return nil
	}
	facts.Domain, err = orNone(last(ctx, &p.common, facts, "DNS domain", func() (string, error) {
		said := kubeadm.Networking.DNSDomain
		if said == "" {
			return "", absent("%s does not say the DNS domain of the cluster; set %s", nameKubeadm, settingDomain)
		}
		if err := blueprint.CheckDomain(said); err != nil {
			return "", incomplete("%s: dnsDomain %s: correct it; or set %s", nameKubeadm, err, settingDomain)
		}
		return said, nil
	}))
	return err
}

// ownServices returns the prefixes of Services in the API server's own configuration, which the API server publishes as
// the ServiceCIDR kubernetes. Before Kubernetes 1.33, it doesn't publish them.
func (p *Plain) ownServices(ctx context.Context, facts *blueprint.Facts) ([]string, error) {
	own, err := lastOf(ctx, &p.common, facts, named(p.Live, kubernetesService, nameServiceCIDR),
		func(object *networkingv1.ServiceCIDR) ([]string, error) {
			if len(legal(object.Spec.CIDRs)) == 0 {
				return nil, incomplete("%s has no prefix of services", nameServiceCIDR)
			}
			return object.Spec.CIDRs, nil
		})
	return orWait(facts, own, err)
}

func parseKubeadm(object *corev1.ConfigMap) (config kubeadmNetworks, err error) {
	text := object.Data[kubeadmKey]
	if text == "" {
		return config, absent("%s has no %s", nameKubeadm, kubeadmKey)
	}
	if len(text) > maxKubeadm || yaml.Unmarshal([]byte(text), &config) != nil {
		return kubeadmNetworks{}, incomplete("%s: %s is not the YAML of a ClusterConfiguration", nameKubeadm,
			kubeadmKey)
	}
	for _, text := range split(config.Networking.PodSubnet) {
		if _, err = netip.ParsePrefix(text); err != nil {
			return config, incomplete("%s: podSubnet has %.40q, which is no prefix such as 10.244.0.0/16: correct it",
				nameKubeadm, text)
		}
	}
	return config, nil
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// kubeDNS is the name and the k8s-app label of the cluster's DNS Service, whatever DNS server the cluster uses.
const kubeDNS = "kube-dns"

// dns reads the address of the DNS Service, because no convention determines this address.
func (p *Plain) dns(ctx context.Context, _ v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) (err error) {
	facts.DNS, err = last(ctx, &p.common, facts, nameDNS, func() (netip.Addr, error) { return p.readDNS(ctx) })
	return err
}

func (p *Plain) readDNS(ctx context.Context) (none netip.Addr, err error) {
	var list corev1.ServiceList
	if err = listed(ctx, p.Live, &list, "Services in "+metav1.NamespaceSystem,
		client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels{"k8s-app": kubeDNS}); err != nil {
		return none, err
	}
	// Other Services may have this label as well, such as the upstream of NodeLocal DNSCache.
	slices.SortFunc(list.Items, func(a, b corev1.Service) int {
		if (a.Name == kubeDNS) != (b.Name == kubeDNS) {
			if a.Name == kubeDNS {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.Name, b.Name)
	})
	for _, service := range list.Items {
		for _, text := range append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...) {
			if address, err := netip.ParseAddr(text); err == nil && address.Is4() {
				return address, nil
			}
		}
	}
	if len(list.Items) > 0 {
		return none, incomplete("%s has no IPv4 address; Windows nodes need one", nameDNS)
	}
	return none, incomplete("%s does not exist: install DNS, such as with `kubeadm init phase addon coredns`", nameDNS)
}

// plainProxy returns the proxy in the settings, or else the operator's own proxy. Like OpenShift, it excludes
// destinations within the cluster from the proxy.
func (p *Plain) plainProxy(set v1alpha1.ProxySpec, facts blueprint.Facts) blueprint.Proxy {
	proxy := blueprint.Proxy{HTTP: set.HTTPProxy, HTTPS: set.HTTPSProxy, None: set.NoProxy}
	if proxy.HTTP == "" && proxy.HTTPS == "" {
		proxy = p.Proxy
	}
	if proxy.HTTP == "" && proxy.HTTPS == "" {
		return proxy
	}
	none := append([]string{"127.0.0.1", "localhost", ".svc", "." + facts.ClusterDomain()}, split(proxy.None)...)
	for _, network := range facts.ServiceNetworks {
		if network.Addr().Is4() { // Windows nodes only use IPv4
			none = append(none, network.String())
		}
	}
	for _, network := range facts.PodNetworks {
		none = append(none, network.String())
	}
	if server, err := url.Parse(facts.APIServer); err == nil {
		none = append(none, server.Hostname())
	}
	slices.Sort(none)
	proxy.None = strings.Join(slices.Compact(none), ",")
	return proxy
}

// Inputs implements Source.
func (p *Plain) Inputs() []Input { return PlainInputs(p.Namespace) }

// PlainInputs returns the inputs of a Plain for an operator in this namespace. Objects in other namespaces are not
// inputs: they hardly ever change, and the operator reads them every ten minutes.
func PlainInputs(namespace string) []Input {
	return []Input{
		{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, bundleContent},
		// Compare only the key of a pull secret: no other Secret in this namespace contains facts.
		{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, func(o client.Object) string {
			if secret, ok := o.(*corev1.Secret); ok {
				return string(secret.Data[corev1.DockerConfigJsonKey])
			}
			return ""
		}},
	}
}
