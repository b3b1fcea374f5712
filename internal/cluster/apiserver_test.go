package cluster_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/test/clustertest"
)

// During an upgrade of the control plane, a connection may reach an API server of either version. A kubelet must not
// be newer than any of them. If the operator used the version of the last answer, nodes would change between
// revisions.
func TestA61_TheOldestOfSeveralAPIServersDecidesWhicheverAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answers string
		servers map[string]server
		listing error
		want    string
		says    string
	}{
		"one API server":                    {answers: "v1.36.3", servers: map[string]server{"10.0.0.1": "v1.9.9"}, want: "v1.36.3"},
		"before the upgrade":                {answers: "v1.36.3", servers: three("v1.36.3", "v1.36.3", "v1.36.3"), want: "v1.36.3"},
		"the first is upgraded and answers": {answers: "v1.37.0", servers: three("v1.37.0", "v1.36.3", "v1.36.3"), want: "v1.36.3"},
		"an older one answers":              {answers: "v1.36.3", servers: three("v1.37.0", "v1.36.3", "v1.37.0"), want: "v1.36.3"},
		"minors are numbers":                {answers: "v1.100.0", servers: three("v1.100.0", "v1.99.0", "v1.100.0"), want: "v1.99.0"},
		"all are upgraded":                  {answers: "v1.37.0", servers: three("v1.37.0", "v1.37.0", "v1.37.0"), want: "v1.37.0"},
		"one does not answer":               {answers: "v1.37.0", servers: three("v1.37.0", "", "v1.36.3"), want: "v1.36.3"},
		"none can be reached directly":      {answers: "v1.36.3", servers: three("", "", ""), want: "v1.36.3"},
		"one server reports nonsense":       {answers: "v1.37.0", servers: three("v1.37.0", "x", "v1.36.3"), want: "v1.36.3"},
		"none is listed":                    {answers: "v1.36.3", want: "v1.36.3"},
		"the list may not be read": {answers: "v1.36.3", listing: apierrors.NewForbidden(schema.GroupResource{
			Resource: "endpointslices"}, "kubernetes", nil), says: "apply the operator's manifests again"},
		"the list can't be read just now": {answers: "v1.36.3", listing: errors.New("etcdserver: request timed out"),
			says: "timed out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, _, _ := plainObjects(t)
			if test.servers != nil {
				slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
					Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}}}
				for address := range maps.Keys(test.servers) {
					slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
				}
				all = append(all, slice)
			}
			c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).WithInterceptorFuncs(interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
					options ...client.GetOption) error {
					if _, is := o.(*discoveryv1.EndpointSlice); is && test.listing != nil {
						return test.listing
					}
					return c.Get(ctx, key, o, options...)
				}}).Build()
			r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server(test.answers),
				Namespace: elsewhere, Access: access(t, everything),
				At: func(address string) (cluster.Versioner, error) {
					return test.servers[strings.TrimSuffix(address, ":6443")], nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			facts, err := r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
			if facts.KubernetesVersion != test.want || (err == nil) != (test.says == "") ||
				err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("the version is %q: %v", facts.KubernetesVersion, err)
			}
		})
	}
}

func three(a, b, c server) map[string]server {
	return map[string]server{"10.0.0.1": a, "10.0.0.2": b, "10.0.0.3": c}
}

// Certificates of API servers have the Service's name, but often not the address of each API server.
func TestA61_AnAPIServerIsAskedAtItsOwnAddressUnderTheServicesName(t *testing.T) {
	t.Parallel()
	ca, key, err := certutil.GenerateSelfSignedCertKey("kubernetes.default.svc", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(ca, key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/version" && r.Header.Get("Authorization") == "Bearer token" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"gitVersion":"v1.36.3"}`)
		}
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(s.Close)
	at := cluster.At(&rest.Config{Host: "https://elsewhere.invalid", BearerToken: "token",
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	one, err := at(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if info, err := one.ServerVersion(); err != nil || info.GitVersion != "v1.36.3" {
		t.Errorf("%v, %v", info, err)
	}
}

// If the API server's URL contains a name, the name may resolve to private addresses. A kubelet could then report these
// addresses as its own.
func TestA54_AddressesOfTheAPIServerAndIngressAreReservedWhereItsURLHasAName(t *testing.T) {
	t.Parallel()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Ports: []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(6443))}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.11"}}, {Addresses: []string{"10.0.0.12"}},
			{Addresses: []string{"127.0.0.1"}}}}
	const api, ingress = "10.0.0.5", "10.0.0.6"
	both, addresses := []string{api, ingress}, []configv1.IP{api}
	for name, test := range map[string]struct {
		platform *configv1.PlatformStatus // nil means no OpenShift
		isDown   bool                     // DNS fails after its first answer
		want     []string
	}{
		"of kubeadm": {},
		"of kubeadm, while DNS does not answer any more": {isDown: true},
		"of a cloud": {platform: &configv1.PlatformStatus{Type: "AWS"}},
		"of vSphere": {platform: &configv1.PlatformStatus{Type: "VSphere", VSphere: &configv1.VSpherePlatformStatus{
			APIServerInternalIPs: []string{api, "fd00:1::5"}, IngressIPs: []string{ingress}}},
			want: append([]string{"fd00:1::5"}, both...)},
		"of Nutanix": {platform: &configv1.PlatformStatus{Type: "Nutanix", Nutanix: &configv1.NutanixPlatformStatus{
			APIServerInternalIPs: []string{api}, IngressIPs: []string{ingress}}}, want: both},
		"of KubeVirt, which has one of each": {platform: &configv1.PlatformStatus{Type: "KubeVirt",
			Kubevirt: &configv1.KubevirtPlatformStatus{APIServerInternalIP: api, IngressIP: ingress}}, want: both},
		"of a cloud without its DNS": {platform: &configv1.PlatformStatus{Type: "GCP", GCP: &configv1.GCPPlatformStatus{
			CloudLoadBalancerConfig: &configv1.CloudLoadBalancerConfig{ClusterHosted: &configv1.CloudLoadBalancerIPs{
				APIIntLoadBalancerIPs: addresses, IngressLoadBalancerIPs: []configv1.IP{ingress}}}}}, want: both},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, _, _ := plainObjects(t)
			namespace := elsewhere
			if test.platform != nil {
				all, namespace = objects(t, clustertest.Options{Platform: test.platform.Type}), contract.OperatorNamespace
				for _, o := range all {
					edit(func(o *configv1.Infrastructure) { o.Status.PlatformStatus = test.platform })(o)
				}
			}
			c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(append(all, slice.DeepCopy())...).Build()
			isDown := false
			source, err := newSource(test.platform != nil, cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"),
				Namespace: namespace, Access: access(t, everything),
				Lookup: func(_ context.Context, host string) ([]string, error) {
					if isDown || !strings.HasPrefix(host, "api") {
						return nil, errors.New("no such host")
					}
					return []string{"10.0.0.20"}, nil
				}})
			if err != nil {
				t.Fatal(err)
			}
			facts, err := source.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
			if isDown = test.isDown; isDown && err == nil {
				facts, err = source.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
			}
			if err != nil {
				t.Fatal(err)
			}
			for text, want := range reservedOr(append([]string{"10.0.0.11", "10.0.0.12", "10.0.0.20"}, test.want...)) {
				address := netip.MustParseAddr(text)
				if got := slices.ContainsFunc(facts.Reserved(), func(p netip.Prefix) bool {
					return p.Contains(address)
				}); got != want {
					t.Errorf("%s is reserved: %t; all reserved addresses: %v", text, got, facts.Reserved())
				}
			}
		})
	}
}

// reservedOr returns a map that tells for each address whether it must be reserved. It includes addresses that must
// not be reserved.
func reservedOr(reserved []string) map[string]bool {
	all := map[string]bool{"127.0.0.1": false, "10.0.0.99": false}
	for _, text := range reserved {
		all[text] = true
	}
	return all
}

func newSource(openShift bool, o cluster.Options) (cluster.Source, error) {
	if openShift {
		return cluster.NewReader(o)
	}
	return cluster.NewPlain(o)
}
