//go:build linux

package wine_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/wine"
	"github.com/windows-nodes/wmco/lab/wine/hns"
)

const (
	// firstLife is the lifetime of the real kubelet's first certificates. It is short, so that kubelet renews them
	// during the test. Renewed certificates are valid for laterLife.
	firstLife, laterLife = 3 * time.Minute, 24 * time.Hour
	// joins is the time limit for a host with the real kubelet. It is long, because kube-proxy alone waits ten seconds
	// at its start.
	joins = 10 * time.Minute
)

// real is a scene with one host that runs the real kubelet and kube-proxy.
type real struct {
	*stage
	h *fleet.Host
}

// newReal joins this host. The host needs its own network, because hosts of other tests use the same ports.
func newReal(t *testing.T) real {
	t.Helper()
	if !shared.template.Isolated() {
		t.Skip("without network namespaces, a host of other tests uses kubelet's ports")
	}
	payload := writeKubernetes(t, version, beforeMinor)
	began := time.Now()
	made, err := scene.Start(t.Context(), scene.Options{
		Operator: os.Getenv("WMCO_OPERATOR"), Payload: payload, Progress: os.Stderr, Debug: true,
		SigningDuration: firstLife, Hosts: fleet.Options{Count: 1},
		// the host's disk is this machine's disk, which may be nearly full
		Settings: &v1alpha1.WindowsMachineConfigSpec{Kubelet: v1alpha1.KubeletSpec{Config: &runtime.RawExtension{
			Raw: []byte(`{"evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%"}}`)}}},
		Computer: func(ctx context.Context, hostname string, address netip.Addr,
			reach []netip.AddrPort) (fleet.Computer, error) {
			return shared.template.StartAt(ctx, hostname, address, reach)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{Scene: made, template: shared.template}
	t.Cleanup(func() {
		if t.Failed() {
			s.tell(context.WithoutCancel(t.Context()))
		}
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	h := made.Fleet.Hosts[0]
	h.Name = strings.ToLower(h.Computer.Hostname())
	if err = errors.Join(made.List(t.Context(), h), made.WaitReady(t.Context(), joins, h),
		made.Cluster.SetSigningDuration(t.Context(), laterLife)); err != nil {
		t.Fatal(err)
	}
	t.Logf("the host was Ready %.1f s after the scene began", time.Since(began).Seconds())
	return real{s, h}
}

// beforeMinor is the nodes' minor version before the upgrade. minor is the API server's minor version, to which they
// are upgraded.
var beforeMinor, minor = wine.Minors()

// writeKubernetes creates a payload with the kubelet and kube-proxy of a minor version.
func writeKubernetes(t *testing.T, version, minor string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "payload")
	if err := wine.WriteKubernetesPayload(t.Context(), dir, version, minor, os.Stderr); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestA46_TheRealKubeletAndKubeProxyRunWithOurFlagsAndFiles(t *testing.T) {
	r := newReal(t)
	t.Run("the node is what kubelet found, and what our flags and files say",
		func(t *testing.T) { r.registers(t, beforeMinor) })
	t.Run("its certificates were approved by our rules", r.isApproved)
	t.Run("it answers the log query over the certificate that we approved", r.answersLogQuery)
	t.Run("kube-proxy programs the host network service", r.programs)
	t.Run("it renews its lease", r.renewsLease)
	t.Run("it renews its certificate", r.renewsCertificate)
	t.Run("it goes from one minor version to the next", r.upgrades)
}

func (r real) registers(t *testing.T, minor string) {
	t.Helper()
	node := r.node(t, r.h)
	info := node.Status.NodeInfo
	if !strings.HasPrefix(info.KubeletVersion, "v"+minor+".") ||
		!strings.HasPrefix(info.ContainerRuntimeVersion, "containerd://2.") ||
		info.OSImage != "Windows Server 2022 Datacenter" || info.OperatingSystem != "windows" ||
		!strings.HasPrefix(info.KernelVersion, "10.0.20348.") {
		t.Errorf("the Node's status has the versions %+v", info)
	}
	// The maximum of pods and the reserved memory come from kubelet's configuration file. The labels and the taint
	// come from its flags and its configuration file.
	reserved := node.Status.Capacity.Memory().Value() - node.Status.Allocatable.Memory().Value()
	if pods := node.Status.Capacity.Pods().Value(); pods != 250 || reserved < 2<<30 {
		t.Errorf("the node allows %d pods and reserves %d bytes", pods, reserved)
	}
	if node.Labels[contract.OSIDLabel] != contract.OSIDWindows || !slices.ContainsFunc(node.Spec.Taints,
		func(taint corev1.Taint) bool {
			return taint.Key == contract.TaintKey && taint.Value == contract.TaintValue &&
				taint.Effect == corev1.TaintEffectNoSchedule
		}) {
		t.Errorf("the node has the labels %v and the taints %v", node.Labels, node.Spec.Taints)
	}
	for _, c := range node.Status.Conditions {
		if want := c.Type == corev1.NodeReady; (c.Status == corev1.ConditionTrue) != want {
			t.Errorf("%s is %s: %s", c.Type, c.Status, c.Message)
		}
	}
}

// requests returns kubelet's requests for one signer, oldest first.
func (r real) requests(ctx context.Context, signer string) ([]certificatesv1.CertificateSigningRequest, error) {
	list := &certificatesv1.CertificateSigningRequestList{}
	err := r.Client.List(ctx, list)
	found := slices.DeleteFunc(list.Items, func(c certificatesv1.CertificateSigningRequest) bool {
		return c.Spec.SignerName != signer
	})
	slices.SortStableFunc(found, func(a, b certificatesv1.CertificateSigningRequest) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	return found, err
}

func (r real) isApproved(t *testing.T) {
	for _, signer := range []string{certificatesv1.KubeAPIServerClientKubeletSignerName,
		certificatesv1.KubeletServingSignerName} {
		requests, err := r.requests(t.Context(), signer)
		if err != nil || len(requests) == 0 {
			t.Fatalf("requests to %s: %d, %v", signer, len(requests), err)
		}
		first := requests[0].Status
		if len(first.Conditions) != 1 || first.Conditions[0].Type != certificatesv1.CertificateApproved ||
			first.Conditions[0].Reason != string(policy.CSRKubeletApproved) || len(first.Certificate) == 0 {
			t.Errorf("%s: %+v", signer, first.Conditions)
		}
	}
}

// answer is an answer of kubelet.
type answer struct {
	status  int
	content string
	served  *x509.Certificate
}

// kubelet sends a request to the host's kubelet with given credentials. It accepts only a certificate of the cluster's
// CA. The test sends the request itself, because the lab's API server can't connect to the host.
func (r real) kubelet(ctx context.Context, as *rest.Config, path string) (answer, error) {
	at := netip.AddrPortFrom(r.internalIP(ctx), kubeletPort)
	as.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) { return machine(r.h).Dial(ctx, at) }
	client, err := rest.HTTPClientFor(as)
	if err != nil {
		return answer{}, err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+at.String()+path, http.NoBody)
	if err != nil {
		return answer{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, 8<<20))
	return answer{response.StatusCode, string(content), leaf(response.TLS)}, err
}

// allowed sends a request to kubelet as a user with all rights.
func (r real) allowed(ctx context.Context, path string) (answer, error) {
	got, err := r.kubelet(ctx, r.Cluster.Admin(), path)
	if err == nil && got.status != http.StatusOK {
		err = fmt.Errorf("%d: %s", got.status, got.content)
	}
	return got, err
}

const kubeletPort = 10250

func leaf(state *tls.ConnectionState) *x509.Certificate { return state.PeerCertificates[0] }

func (r real) internalIP(ctx context.Context) netip.Addr {
	node := &corev1.Node{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: r.h.Name}, node); err != nil {
		return netip.Addr{}
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			address, _ := netip.ParseAddr(a.Address)
			return address
		}
	}
	return netip.Addr{}
}

func (r real) answersLogQuery(t *testing.T) {
	got, err := r.allowed(t.Context(), "/logs/?query=kubelet")
	if err != nil {
		t.Fatal(err)
	}
	// Only the real kubelet writes this line, not a stand-in.
	if !strings.Contains(got.content, "Started kubelet") {
		t.Errorf("kubelet's log is %.2000s", got.content)
	}
	if got.served.Subject.CommonName != "system:node:"+r.h.Name {
		t.Errorf("kubelet's serving certificate is for %s", got.served.Subject)
	}
	unknown, err := r.kubelet(t.Context(), rest.AnonymousClientConfig(r.Cluster.Admin()), "/logs/")
	if err != nil || unknown.status != http.StatusUnauthorized {
		t.Errorf("kubelet answers a request without a certificate with %d, %v", unknown.status, err)
	}
}

// hnsFile is the file in which the simulated HNS of a host stores its state.
const hnsFile = `C:\windows\system32\hns.json`

// service creates a Service with an endpoint on a node. If node is empty, the endpoint is elsewhere.
func (r real) service(t *testing.T, name, endpoint, node string) *corev1.Service {
	t.Helper()
	made := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, GenerateName: name + "-"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if err := r.Client.Create(t.Context(), made); err != nil {
		t.Fatal(err)
	}
	port, protocol := int32(8080), corev1.ProtocolTCP
	point := discoveryv1.Endpoint{Addresses: []string{endpoint}}
	if node != "" {
		point.NodeName = &node
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: made.Namespace, Name: made.Name,
			Labels: map[string]string{discoveryv1.LabelServiceName: made.Name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{point},
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
	}
	if err := r.Client.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	return made
}

// programs creates two Services, and checks the load balancers that kube-proxy programs. For endpoints of the overlay,
// connections must have the source address in kube-proxy's configuration. For endpoints that no node has, they must
// have the node's own address.
func (r real) programs(t *testing.T) {
	config, err := winos.ReadFile(windows(t, r.h).Files, contract.PathKubeProxyConfig)
	if err != nil {
		t.Fatal(err)
	}
	var ours struct{ Winkernel struct{ SourceVip string } }
	if err = json.Unmarshal(config, &ours); err != nil || ours.Winkernel.SourceVip == "" {
		t.Fatalf("kube-proxy's configuration is %s, %v", config, err)
	}
	source := ours.Winkernel.SourceVip
	for _, c := range []struct{ name, endpoint, node, source string }{
		{"near", source, r.h.Name, source}, {"far", "192.0.2.9", "", r.internalIP(t.Context()).String()},
	} {
		made := r.service(t, c.name, c.endpoint, c.node)
		what := func(b hns.LoadBalancer) bool {
			return slices.Equal(b.FrontendVIPs, []string{made.Spec.ClusterIP}) &&
				slices.Equal(b.HostComputeEndpoints, []string{c.endpoint}) && len(b.PortMappings) == 1 &&
				b.PortMappings[0].Protocol == 6 && b.PortMappings[0].ExternalPort == 80 &&
				b.PortMappings[0].InternalPort == 8080 && b.SourceVIP == c.source
		}
		r.awaitBalancers(t, "a load balancer for service "+c.name,
			func(all []hns.LoadBalancer) bool { return slices.ContainsFunc(all, what) })
		if err = r.Client.Delete(t.Context(), made); err != nil {
			t.Fatal(err)
		}
		r.awaitBalancers(t, "the load balancer to go with service "+c.name,
			func(all []hns.LoadBalancer) bool { return !slices.ContainsFunc(all, what) })
	}
}

func (r real) awaitBalancers(t *testing.T, what string, holds func([]hns.LoadBalancer) bool) {
	t.Helper()
	r.await(t, what, func(context.Context) (bool, string, error) {
		all, err := hns.Programmed(machine(r.h).Path(hnsFile))
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // the file may be incomplete while it is written
		}
		return holds(all), fmt.Sprintf("%+v", all), nil
	})
}

func (r real) renewsLease(t *testing.T) {
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: r.h.Name}
	if err := r.Client.Get(t.Context(), key, lease); err != nil {
		t.Fatal(err)
	}
	before := lease.Spec.RenewTime
	r.await(t, "kubelet to renew its lease", func(ctx context.Context) (bool, string, error) {
		err := r.Client.Get(ctx, key, lease)
		return err == nil && before.Before(lease.Spec.RenewTime), "", err
	})
}

// renewsCertificate waits until kubelet has renewed both its serving and its client certificate. The node must be Ready
// after the first certificates have expired.
func (r real) renewsCertificate(t *testing.T) {
	for _, signer := range []string{certificatesv1.KubeAPIServerClientKubeletSignerName,
		certificatesv1.KubeletServingSignerName} {
		r.await(t, "a second certificate of "+signer, func(ctx context.Context) (bool, string, error) {
			requests, err := r.requests(ctx, signer)
			issued := slices.DeleteFunc(requests, func(c certificatesv1.CertificateSigningRequest) bool {
				return len(c.Status.Certificate) == 0
			})
			return len(issued) > 1, fmt.Sprintf("%d certificates were issued", len(issued)), err
		})
	}
	r.await(t, "kubelet to serve with it", func(ctx context.Context) (bool, string, error) {
		got, err := r.allowed(ctx, "/healthz")
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // try again
		}
		return time.Until(got.served.NotAfter) > firstLife, got.served.NotAfter.String(), nil
	})
}

// upgrades publishes another payload. The Node must keep its UID, and kubelet must keep its identity: it must not
// request a first certificate again. kube-proxy must apply all later changes.
func (r real) upgrades(t *testing.T) {
	before := r.node(t, r.h)
	first, err := r.firstRequests(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err = r.Upgrade(t.Context(), "", writeKubernetes(t, nextVersion, minor)); err != nil {
		t.Fatal(err)
	}
	r.await(t, "the node to serve at the next minor version", func(ctx context.Context) (bool, string, error) {
		node := &corev1.Node{}
		if err := r.Client.Get(ctx, client.ObjectKey{Name: r.h.Name}, node); err != nil {
			return false, "", err
		}
		ready, why := journey.NodeReady(node)
		told := node.Annotations
		isThere := told[contract.RevisionAnnotation] != before.Annotations[contract.RevisionAnnotation] &&
			told[contract.RevisionAnnotation] == told[contract.DesiredRevisionAnnotation]
		return ready && isThere && !node.Spec.Unschedulable &&
				strings.HasPrefix(node.Status.NodeInfo.KubeletVersion, "v"+minor+"."),
			fmt.Sprintf("%s, kubelet %s, cordoned %v: %s", told[contract.RevisionAnnotation],
				node.Status.NodeInfo.KubeletVersion, node.Spec.Unschedulable, why), nil
	})
	t.Logf("the node was at %s %.1f s after the new payload was published", minor, time.Since(began).Seconds())
	again, err := r.firstRequests(t.Context())
	if node := r.node(t, r.h); err != nil || node.UID != before.UID || again != first {
		t.Errorf("the Node's UID is %s, want %s; kubelet made %d first requests, want %d; %v", node.UID, before.UID,
			again, first, err)
	}
	t.Run("the node is what kubelet found", func(t *testing.T) { r.registers(t, minor) })
	t.Run("it answers the log query", r.answersLogQuery)
	t.Run("kube-proxy programs the host network service", r.programs)
}

// firstRequests counts kubelet's certificate requests with a bootstrap token.
func (r real) firstRequests(ctx context.Context) (count int, err error) {
	requests, err := r.requests(ctx, certificatesv1.KubeAPIServerClientKubeletSignerName)
	for i := range requests {
		if !strings.HasPrefix(requests[i].Spec.Username, contract.KubeletUserPrefix) {
			count++
		}
	}
	return count, err
}
