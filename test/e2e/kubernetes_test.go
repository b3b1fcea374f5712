package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/registry"
)

// external checks that the operator installs no network on hosts with an external network.
func (c *crew) external(t *testing.T) {
	t.Helper()
	for _, h := range c.hosts {
		if files, err := h.Machine.Host().Files.List(contract.DirCNI); err == nil &&
			slices.ContainsFunc(files, func(f winos.FileInfo) bool { return !f.Dir }) {
			t.Errorf("%s has CNI plugins that the operator installed", h.Name)
		}
	}
}

// flannel checks that each host has its own subnet of flannel's network, and that it keeps this subnet after it leaves
// and joins again.
func (c *crew) flannel(t *testing.T) {
	t.Helper()
	subnets := map[string]bool{}
	for _, h := range c.hosts {
		subnets[c.onFlannel(t, h)] = true
	}
	if len(subnets) != len(c.hosts) {
		t.Errorf("%d hosts have the subnets %v, want a different one for each", len(c.hosts), subnets)
	}
	t.Log("flanneld ends, and its network goes, as in a boot")
	h := c.hosts[0]
	host := h.Machine.Host()
	if err := errors.Join(host.Network.RemoveHNSNetwork(t.Context(), flannelNetwork),
		host.Services.Stop(t.Context(), contract.ServiceFlannel)); err != nil {
		t.Fatal(err)
	}
	c.await(t, "flannel's network and kube-proxy to be back", func(ctx context.Context) (bool, string, error) {
		_, err := host.Network.HNSNetwork(ctx, flannelNetwork)
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // not joined yet
		}
		proxy, err := host.Services.Get(ctx, contract.ServiceKubeProxy)
		return proxy.State == winos.ServiceRunning, "kube-proxy, which depends on flanneld", err
	})
	c.ready(t, c.hosts...)
	c.onFlannel(t, h)
}

// flannelNetwork is the name of flannel's HNS network in the lab.
const flannelNetwork = "flannel.4096"

// onFlannel checks that a node is in flannel's network, and returns its subnet.
func (s *stage) onFlannel(t *testing.T, h *fleet.Host) (subnet string) {
	t.Helper()
	services := managed(t, h)
	for name, want := range map[string]bool{contract.ServiceFlannel: true, contract.ServiceKubeProxy: true,
		contract.ServiceHybridOverlay: false} {
		if service, has := services[name]; has != want || has && service.State != winos.ServiceRunning {
			t.Errorf("%s: service %s is %+v", h.Name, name, service)
		}
	}
	node := &corev1.Node{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: h.Name}, node); err != nil {
		t.Fatal(err)
	}
	network, err := h.Machine.Host().Network.HNSNetwork(t.Context(), flannelNetwork)
	if err != nil || node.Spec.PodCIDR == "" || network.Subnet.String() != node.Spec.PodCIDR {
		t.Errorf("%s: the network is %+v (%v), the Node has %q", h.Name, network, err, node.Spec.PodCIDR)
	}
	const flannel = "flannel.alpha.coreos.com/"
	if node.Annotations[flannel+"public-ip"] != network.ManagementIP.String() ||
		node.Annotations[flannel+"kube-subnet-manager"] != "true" ||
		!strings.Contains(node.Annotations[flannel+"backend-data"], `"VNI":4096`) ||
		strings.Contains(node.Annotations[flannel+"backend-data"], `""`) {
		t.Errorf("%s: annotations are %v", h.Name, node.Annotations)
	}
	vip, err := h.Machine.Host().Network.EnsureEndpoint(t.Context(), flannelNetwork, contract.SourceVIPEndpointName,
		netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	for path, words := range map[string][]string{
		contract.PathKubeProxyConfig: {flannelNetwork, vip.String(), node.Spec.PodCIDR},
		contract.PathCNIConfig:       {flannelNetwork, "win-overlay", "host-local", node.Spec.PodCIDR, "10.244.0.0/16"},
		contract.PathFlannelSubnet:   {"FLANNEL_NETWORK=10.244.0.0/16"},
	} {
		content, err := winos.ReadFile(h.Machine.Host().Files, path)
		for _, word := range words {
			if err != nil || !strings.Contains(string(content), word) {
				t.Errorf("%s: %s lacks %s: %s, %v", h.Name, path, word, content, err)
			}
		}
	}
	return node.Spec.PodCIDR
}

func TestA63_TheOperatorLivesInAnyNamespace(t *testing.T) {
	t.Parallel()
	o := options(1)
	o.Kubernetes, o.Namespace = true, "windows"
	s := own(t, o)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	namespace := &corev1.Namespace{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: contract.OperatorNamespace},
		namespace); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the namespace %s must not exist: %v", contract.OperatorNamespace, err)
	}
	s.drop(t, hosts...)
	s.gone(t, hosts...)
	s.nothingRefused(t, o.Namespace)
}

// nothingOfOpenShift checks that the cluster has no namespace of OpenShift, and that no condition mentions it.
func (s *stage) nothingOfOpenShift(t *testing.T) {
	t.Helper()
	namespaces := &corev1.NamespaceList{}
	if err := s.Client.List(t.Context(), namespaces); err != nil {
		t.Fatal(err)
	}
	for _, n := range namespaces.Items {
		if strings.HasPrefix(n.Name, "openshift-") && n.Name != contract.OperatorNamespace {
			t.Errorf("the namespace %s exists", n.Name)
		}
	}
	config := &v1alpha1.WindowsMachineConfig{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionAccepted} {
		if !meta.IsStatusConditionTrue(config.Status.Conditions, c) {
			t.Errorf("condition %s is %+v", c, meta.FindStatusCondition(config.Status.Conditions, c))
		}
	}
}

// letInByTheOperator checks that the operator approved every certificate of the hosts, although kubeadm's own approving
// controller runs as well.
func (s *stage) letInByTheOperator(t *testing.T, hosts []*fleet.Host) {
	t.Helper()
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := s.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	signers := map[string]int{}
	for _, request := range list.Items {
		for _, c := range request.Status.Conditions {
			if c.Type == certificatesv1.CertificateApproved && strings.HasPrefix(c.Reason, "AutoApproved") {
				t.Errorf("request %s of %s was approved by someone other than the operator: %s", request.Name,
					request.Spec.Username, c.Message)
			}
		}
		if len(request.Status.Certificate) > 0 {
			signers[request.Spec.SignerName]++
		}
	}
	for _, signer := range []string{certificatesv1.KubeAPIServerClientSignerName,
		certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName} {
		if signers[signer] != len(hosts) {
			t.Errorf("%d certificates of the signer %s", signers[signer], signer)
		}
	}
}

// settingsReach sets a proxy and a mirror, and waits until the hosts have them.
func settingsReach(t *testing.T, c *crew) {
	t.Helper()
	ca := registry.NewCA(t, "registries")
	source, copies := registry.Start(t, ca), registry.Start(t, ca)
	image := registry.NewImage(t)
	copies.Push(t, image, "copies/app", "1")
	ours := newCA(t, "a CA")
	c.declare(t, c, declared{
		proxy:       v1alpha1.ProxySpec{HTTPProxy: "http://proxy.invalid:3128", NoProxy: "127.0.0.0/8,inside.invalid"},
		trustBundle: string(ours), atOnce: true, signer: ca, registries: []*registry.Registry{source, copies},
		mirrors: []v1alpha1.ImageMirrors{{Source: source.Host + "/team", Mirrors: []string{copies.Host + "/copies"}}},
	})
	c.everywhere(t, "the proxy, the CA and the mirror", func(h *fleet.Host) error {
		return cmp.Or(proxied(t, h, map[string]string{"HTTP_PROXY": "http://proxy.invalid:3128"}, "inside.invalid"),
			trustsOnce(t, h, string(ours)), pull(t.Context(), h, source.Host, "team/app", image.Digest()))
	})
	c.settled(t)
}

// nothingRefused checks that the API server refused no request of the operator. Exception: one dry run must be refused,
// because it shows the operator that policies are enforced.
func (s *stage) nothingRefused(t *testing.T, namespace string) {
	t.Helper()
	for r, err := range s.Requests() {
		if err != nil {
			t.Fatal(err)
		}
		if r.Code == http.StatusForbidden && !strings.Contains(r.URI, "dryRun=All") && strings.HasPrefix(r.User, "system:serviceaccount:"+namespace+":") {
			t.Errorf("%s was refused to %s %s", r.User, r.Verb, r.URI)
		}
	}
}
