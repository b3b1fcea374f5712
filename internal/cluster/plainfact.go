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
	"github.com/windows-nodes/wmco/internal/contract"
)

// Objects of plain clusters, and how messages name them.
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

// maxKubeadm bounds what is parsed; kubeadm's own has about 2 KiB.
const maxKubeadm = 64 << 10

func keyIn(namespace, name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// apiServer takes the setting, else what kubeadm published for nodes that join.
func (p *Plain) apiServer(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec,
	facts *blueprint.Facts) (err error) {
	const orSet = "; or set spec.apiServer of the WindowsMachineConfig to the URL by which hosts reach the API server"
	if spec.APIServer != "" {
		if facts.APIServer, err = blueprint.CanonicalAPIServer(spec.APIServer); err != nil {
			return incomplete("spec.apiServer of the WindowsMachineConfig: %s", err)
		}
		return nil
	}
	var object corev1.ConfigMap
	found, err := optional(ctx, p.Live, &object, keyIn(metav1.NamespacePublic, "cluster-info"), nameClusterInfo)
	switch {
	case err != nil:
		return err
	case !found:
		return incomplete("%s does not exist: make it with `kubeadm init phase bootstrap-token`"+orSet, nameClusterInfo)
	}
	// The parser's own error would repeat what it read.
	config, err := clientcmd.Load([]byte(object.Data["kubeconfig"]))
	if err != nil || len(config.Clusters) != 1 {
		return incomplete("%s: kubeconfig names no cluster, or several: correct it"+orSet, nameClusterInfo)
	}
	for _, c := range config.Clusters {
		if facts.APIServer, err = blueprint.CanonicalAPIServer(c.Server); err != nil {
			return incomplete("%s: server of the kubeconfig: %s: correct it"+orSet, nameClusterInfo, err)
		}
	}
	return nil
}

// serverCA reads what verifies the API server. The cluster keeps it in every namespace.
func (p *Plain) serverCA(ctx context.Context, _ v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	return p.keepServerCA(ctx, facts, p.readServerCA(ctx, facts))
}

func (p *Plain) readServerCA(ctx context.Context, facts *blueprint.Facts) (err error) {
	name := "the ConfigMap " + p.Namespace + "/kube-root-ca.crt"
	var object corev1.ConfigMap
	if err = get(ctx, p.Cached, &object, keyIn(p.Namespace, "kube-root-ca.crt"), name); err != nil {
		return err
	}
	if facts.BootstrapCA, err = bundle([]byte(object.Data[rootCAKey])); err != nil {
		return incomplete("%s: %s: %s; see whether kube-controller-manager runs with --root-ca-file", name, rootCAKey,
			err)
	}
	return nil
}

// clientCA reads what verifies the API server when it calls kubelets. It may be another one than
// serverCA's.
func (p *Plain) clientCA(ctx context.Context, _ v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) (err error) {
	var object corev1.ConfigMap
	key := keyIn(metav1.NamespaceSystem, "extension-apiserver-authentication")
	if err = get(ctx, p.Live, &object, key, nameAuthentication); err != nil {
		return err
	}
	if facts.KubeletCA, err = bundle([]byte(object.Data[clientCAKey])); err != nil {
		return incomplete("%s: %s: %s; see whether kube-apiserver runs with --client-ca-file", nameAuthentication,
			clientCAKey, err)
	}
	return nil
}

// kubeadmNetworks is the part of kubeadm's configuration that is of use here.
type kubeadmNetworks struct {
	Networking struct {
		ServiceSubnet string `json:"serviceSubnet"`
		PodSubnet     string `json:"podSubnet"`
		DNSDomain     string `json:"dnsDomain"`
	} `json:"networking"`
}

// networks reads the prefixes of services, and those of pods and the DNS domain where kubeadm wrote them down.
func (p *Plain) networks(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	// One that can't be read just now is no reason to tell nodes that there are no pod networks.
	kubeadm, err := p.kubeadm(ctx)
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
			unsupported("%s has no IPv4 prefix of services; Windows nodes need one of at least sixteen addresses",
				where))
	}
	facts.ServiceNetwork, facts.ServiceNetworks = prefix, legal(prefixes)
	if err = p.serviceCIDRs(ctx, facts); err != nil {
		return err
	}
	for _, text := range split(kubeadm.Networking.PodSubnet) {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return incomplete("%s: podSubnet has %.40q, which is no prefix such as 10.244.0.0/16: correct it",
				nameKubeadm, text)
		}
		facts.PodNetworks = append(facts.PodNetworks, network.Masked())
	}
	return errors.Join(classE(where, prefixes), classE(nameKubeadm+": podSubnet", split(kubeadm.Networking.PodSubnet)))
}

// readDomain takes the DNS domain of the setting, else kubeadm's, else the one that kubeadm said before.
func (p *Plain) readDomain(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec, kubeadm kubeadmNetworks,
	facts *blueprint.Facts) error {
	setting, said := spec.Network.ClusterDomain, kubeadm.Networking.DNSDomain
	domain := cmp.Or(setting, said)
	switch err := blueprint.CheckDomain(domain); {
	case domain == "":
		return p.keepDomain(ctx, facts)
	case err != nil && setting != "":
		return incomplete("%s %s", settingDomain, err)
	case err != nil:
		return incomplete("%s: dnsDomain %s: correct it; or set %s", nameKubeadm, err, settingDomain)
	case setting == "": // one that is removed again is in force no more
		p.domain.set(said)
	}
	facts.Domain = domain
	return nil
}

// ownServices are the prefixes of services that the API server was configured with. An older one tells none.
func (p *Plain) ownServices(ctx context.Context, facts *blueprint.Facts) ([]string, error) {
	var object networkingv1.ServiceCIDR
	_, err := optional(ctx, p.Live, &object, client.ObjectKey{Name: "kubernetes"}, nameServiceCIDR)
	if problem, ok := contract.AsProblem(err); ok {
		return p.own.recall(facts, problem), nil
	}
	if err == nil {
		p.own.set(object.Spec.CIDRs)
	}
	return object.Spec.CIDRs, err
}

// kubeadm reads kubeadm's configuration; a cluster that something else made has none.
func (p *Plain) kubeadm(ctx context.Context) (config kubeadmNetworks, err error) {
	var object corev1.ConfigMap
	found, err := optional(ctx, p.Live, &object, keyIn(metav1.NamespaceSystem, "kubeadm-config"), nameKubeadm)
	if err != nil || !found {
		return config, err
	}
	text := object.Data[kubeadmKey]
	if len(text) > maxKubeadm || yaml.Unmarshal([]byte(text), &config) != nil {
		return kubeadmNetworks{}, incomplete("%s: %s is not the YAML of a ClusterConfiguration", nameKubeadm,
			kubeadmKey)
	}
	return config, nil
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
}

// kubeDNS is the name and the label of the cluster's DNS Service, whichever program serves it.
const kubeDNS = "kube-dns"

// dns reads the address of the DNS service; there is no convention for it.
func (p *Plain) dns(ctx context.Context, _ v1alpha1.WindowsMachineConfigSpec, facts *blueprint.Facts) error {
	var list corev1.ServiceList
	err := listed(ctx, p.Live, &list, "Services in "+metav1.NamespaceSystem, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{"k8s-app": kubeDNS})
	if err != nil {
		return err
	}
	// Others have that label, too, such as the upstream of NodeLocal DNSCache.
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
				facts.DNS = address
				return nil
			}
		}
	}
	if len(list.Items) > 0 {
		return incomplete("%s has no IPv4 address; Windows nodes need one", nameDNS)
	}
	return incomplete("%s does not exist: install DNS, such as with `kubeadm init phase addon coredns`", nameDNS)
}

// plainProxy is the setting, else the operator's own proxy. As OpenShift does for its own, it leaves out
// of the proxy what is within the cluster.
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
		if network.Addr().Is4() { // Windows nodes use no others
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

// PlainInputs are those of a Plain for an operator in this namespace. What stands in other namespaces
// hardly ever changes, and is read again every now and then.
func PlainInputs(namespace string) []Input {
	return []Input{
		{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, bundleContent},
		// not by content, which is never empty: the namespace has Secrets that nothing is read from
		{&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}}, func(o client.Object) string {
			if secret, ok := o.(*corev1.Secret); ok {
				return string(secret.Data[corev1.DockerConfigJsonKey])
			}
			return ""
		}},
	}
}
