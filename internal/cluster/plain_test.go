package cluster_test

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/test/clustertest"
)

// elsewhere is a namespace that is in no manifest.
const elsewhere = "windows"

// plainObjects returns the objects that kubeadm, DNS and Kubernetes itself create in a cluster.
func plainObjects(t *testing.T) (all []client.Object, serverCA, clientCA string) {
	t.Helper()
	ca := func(name string) string {
		pem, err := clustertest.Certificate(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(pem)
	}
	serverCA, clientCA = ca("server"), ca("client")
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	dns := &corev1.Service{ObjectMeta: in("kube-system", "kube-dns"), Spec: corev1.ServiceSpec{
		ClusterIP: "fd00::a", ClusterIPs: []string{"fd00::a", "10.96.0.53"}}}
	dns.Labels = map[string]string{"k8s-app": "kube-dns"}
	return []client.Object{
		&corev1.ConfigMap{ObjectMeta: in("kube-public", "cluster-info"), Data: map[string]string{"kubeconfig": `
apiVersion: v1
kind: Config
clusters:
- name: ""
  cluster: {server: "https://API.example.com:6443"}
`}},
		&corev1.ConfigMap{ObjectMeta: in(elsewhere, "kube-root-ca.crt"), Data: map[string]string{"ca.crt": serverCA}},
		&corev1.ConfigMap{ObjectMeta: in("kube-system", "extension-apiserver-authentication"),
			Data: map[string]string{"client-ca-file": clientCA}},
		&corev1.ConfigMap{ObjectMeta: in("kube-system", "kubeadm-config"), Data: map[string]string{
			"ClusterConfiguration": "networking: {serviceSubnet: 10.97.0.0/16, podSubnet: \"10.244.0.0/16,fd01::/48\"}"}},
		&networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"fd00::/108", "10.96.0.0/12"}}},
		dns,
	}, serverCA, clientCA
}

// plainReader returns a reader of the objects, after change was called with each of them. If change returns false,
// the object is omitted. refused means that the bootstrapper lacks its rights.
func plainReader(t *testing.T, all []client.Object, change func(client.Object) bool, refused bool) *cluster.Plain {
	t.Helper()
	if change != nil {
		all = slices.DeleteFunc(all, func(o client.Object) bool { return !change(o) })
	}
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).Build()
	allows := access(t, func(spec authorizationv1.SubjectAccessReviewSpec) bool {
		return !refused && spec.User == "system:serviceaccount:"+elsewhere+":node-bootstrapper" &&
			spec.ResourceAttributes.Resource == "certificatesigningrequests"
	})
	r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
		Access: allows})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestA60_FactsOfAKubeadmClusterComeFromItsOwnObjects(t *testing.T) {
	t.Parallel()
	all, serverCA, clientCA := plainObjects(t)
	facts, err := plainReader(t, all, nil, false).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if facts.APIServer != "https://api.example.com:6443" || facts.BootstrapCA != serverCA || facts.KubeletCA != clientCA ||
		facts.ServiceNetwork != netip.MustParsePrefix("10.96.0.0/12") || facts.ClusterDNS().String() != "10.96.0.53" ||
		facts.KubernetesVersion != "v1.36.3" || facts.NetworkType != blueprint.NetworkExternal ||
		facts.Platform != contract.PlatformNone || len(facts.PodNetworks) != 2 || len(facts.Rejected) > 0 {
		t.Errorf("facts are %+v", facts)
	}
}

// If the pod networks could be missing for a moment, all nodes would change to another revision and back.
func TestA60_PodNetworksThatCantBeReadJustNowAreNotGone(t *testing.T) {
	t.Parallel()
	all, _, _ := plainObjects(t)
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			if key.Name == "kubeadm-config" {
				return errors.New("etcdserver: request timed out")
			}
			return c.Get(ctx, key, o, options...)
		}}).Build()
	r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
		Access: access(t, everything)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err == nil || !strings.Contains(err.Error(), "request timed out") {
		t.Errorf("facts without the pod networks: %v", err)
	}
}

func TestA60_AnOlderAPIServerSaysTheServiceNetworkInKubeadmsConfiguration(t *testing.T) {
	t.Parallel()
	all, _, _ := plainObjects(t)
	facts, err := plainReader(t, all, func(o client.Object) bool { return o.GetName() != "kubernetes" }, false).
		Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil || facts.ServiceNetwork.String() != "10.97.0.0/16" {
		t.Errorf("%v, %v", facts.ServiceNetwork, err)
	}
}

func TestA60_WhatAPlainClusterLacksIsAProblemWithTheFix(t *testing.T) {
	t.Parallel()
	gone := func(names ...string) func(client.Object) bool {
		return func(o client.Object) bool { return !slices.Contains(names, o.GetName()) }
	}
	data := func(name, key, value string) func(client.Object) bool {
		return func(o client.Object) bool {
			if c, ok := o.(*corev1.ConfigMap); ok && o.GetName() == name {
				c.Data[key] = value
			}
			return true
		}
	}
	for name, test := range map[string]struct {
		change  func(client.Object) bool
		spec    v1alpha1.WindowsMachineConfigSpec
		refused bool
		reason  contract.Reason
		says    []string
	}{
		"no cluster-info": {change: gone("cluster-info"), says: []string{"kube-public/cluster-info", "spec.apiServer"}},
		"a cluster-info without a cluster": {change: data("cluster-info", "kubeconfig", "{}"),
			says: []string{"kube-public/cluster-info", "spec.apiServer"}},
		"a cluster-info that is no YAML": {change: data("cluster-info", "kubeconfig", "\t"),
			says: []string{"kube-public/cluster-info"}},
		"an API server that is no URL": {spec: v1alpha1.WindowsMachineConfigSpec{APIServer: "http://a"},
			says: []string{"spec.apiServer"}},
		"no CA of the API server": {change: gone("kube-root-ca.crt"), says: []string{elsewhere + "/kube-root-ca.crt"}},
		"an invalid CA": {change: data("kube-root-ca.crt", "ca.crt", "junk"),
			says: []string{"kube-root-ca.crt", "--root-ca-file"}},
		"no CA of clients": {change: gone("extension-apiserver-authentication"),
			says: []string{"extension-apiserver-authentication"}},
		"an empty CA of clients": {change: data("extension-apiserver-authentication", "client-ca-file", ""),
			says: []string{"--client-ca-file"}},
		"no service network at all": {change: gone("kubernetes", "kubeadm-config"),
			says: []string{"the ServiceCIDR kubernetes", "kubeadm-config"}},
		"an invalid kubeadm-config, and nothing else": {change: func(o client.Object) bool {
			return o.GetName() != "kubernetes" && data("kubeadm-config", "ClusterConfiguration", "\t")(o)
		}, says: []string{"ClusterConfiguration"}},
		"services in IPv6 only": {change: func(o client.Object) bool {
			if s, ok := o.(*networkingv1.ServiceCIDR); ok {
				s.Spec.CIDRs = []string{"fd00::/108"}
			}
			return true
		}, reason: contract.ReasonNetworkUnsupported, says: []string{"IPv4"}},
		"no DNS": {change: gone("kube-dns"), says: []string{"k8s-app=kube-dns", "coredns"}},
		"a headless DNS": {change: func(o client.Object) bool {
			if s, ok := o.(*corev1.Service); ok {
				s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"}
			}
			return true
		}, says: []string{"no IPv4 address"}},
		"a network of OpenShift": {spec: v1alpha1.WindowsMachineConfigSpec{
			Network: v1alpha1.NetworkSpec{Type: v1alpha1.NetworkOVNKubernetesHybrid}},
			reason: contract.ReasonNetworkUnsupported, says: []string{"needs OpenShift"}},
		"no right to join": {refused: true, reason: contract.ReasonBootstrapNotGranted,
			says: []string{"system:serviceaccount:" + elsewhere + ":node-bootstrapper"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, _, _ := plainObjects(t)
			facts, err := plainReader(t, all, test.change, test.refused).Facts(t.Context(), test.spec)
			problems := append(cluster.Problems(err), facts.Lacks...)
			if len(problems) != 1 || err != nil && !onlyProblems(err) {
				t.Fatalf("problems %v of %v", problems, err)
			}
			reason := contract.ReasonClusterFactsIncomplete
			if test.reason != "" {
				reason = test.reason
			}
			if problems[0].Reason != reason {
				t.Errorf("reason %s", problems[0].Reason)
			}
			for _, text := range test.says {
				if !strings.Contains(problems[0].Detail, text) {
					t.Errorf("%q lacks %s", problems[0].Detail, text)
				}
			}
		})
	}
}

func TestA62_SettingsSayWhatNoObjectOfAPlainClusterDoes(t *testing.T) {
	t.Parallel()
	all, _, _ := plainObjects(t)
	all = append(all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "pulls"},
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: elsewhere, Name: "cas"},
			Data: map[string]string{"one": "PEM"}})
	spec := v1alpha1.WindowsMachineConfigSpec{
		APIServer:  "https://other.example.com",
		Proxy:      v1alpha1.ProxySpec{HTTPProxy: "http://proxy:3128", NoProxy: "10.0.0.0/8, .example.com"},
		PullSecret: "pulls", Trust: v1alpha1.TrustSpec{AdditionalCA: "cas"},
		Mirrors: v1alpha1.MirrorsSpec{
			ImageDigestMirrors: []v1alpha1.ImageMirrors{{Source: "quay.io/a", Mirrors: []string{"m.example/a"},
				MirrorSourcePolicy: "NeverContactSource"}},
			ImageTagMirrors: []v1alpha1.ImageMirrors{{Source: "docker.io", Mirrors: []string{"m.example/hub"}}},
		},
	}
	facts, err := plainReader(t, all, nil, false).Facts(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if facts.APIServer != "https://other.example.com" || string(facts.PullSecret) != `{"auths":{}}` ||
		len(facts.Trust) != 1 || string(facts.Trust[0].PEM) != "PEM" || len(facts.Rejected) > 0 {
		t.Errorf("the facts are %+v", facts)
	}
	if len(facts.Mirrors) != 2 || facts.Mirrors[0].Kind != contract.PullByDigest ||
		facts.Mirrors[0].Policy != "NeverContactSource" || facts.Mirrors[1].Kind != contract.PullByTag ||
		facts.Mirrors[1].Mirrors[0] != "m.example/hub" {
		t.Errorf("the mirrors are %+v", facts.Mirrors)
	}
	const none = ".cluster.local,.example.com,.svc,10.0.0.0/8,10.244.0.0/16,10.96.0.0/12,127.0.0.1,fd01::/48,localhost," +
		"other.example.com"
	if facts.Proxy != (blueprint.Proxy{HTTP: "http://proxy:3128", None: none}) {
		t.Errorf("the proxy is %+v", facts.Proxy)
	}
}

// If a policy sets a proxy for every pod, the operator's pod has this proxy as well, and nodes get the operator's
// proxy. If the proxy blocks requests to the API server and nodes sent such requests through the proxy, every node
// would be disconnected.
func TestA62_WhatIsWithinTheClusterIsNotReachedThroughTheOperatorsOwnProxyEither(t *testing.T) {
	t.Parallel()
	all, _, _ := plainObjects(t)
	all = append(all, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.77.0.0/16"}}})
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).Build()
	const none = ".cluster.local,.corp,.svc,10.244.0.0/16,10.77.0.0/16,10.96.0.0/12,127.0.0.1,api.example.com,fd01::/48," +
		"localhost"
	for name, test := range map[string]struct{ given, want blueprint.Proxy }{
		"a proxy": {blueprint.Proxy{HTTPS: "http://proxy:3128", None: ".corp"},
			blueprint.Proxy{HTTPS: "http://proxy:3128", None: none}},
		"no proxy": {},
	} {
		r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
			Access: access(t, everything), Proxy: test.given})
		if err != nil {
			t.Fatal(err)
		}
		facts, err := r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
		if err != nil || facts.Proxy != test.want {
			t.Errorf("%s: the proxy is %+v, %v", name, facts.Proxy, err)
		}
	}
}

func TestA60_TheDomainOfTheClusterIsKubeadmsOrTheUsers(t *testing.T) {
	t.Parallel()
	const other = "networking: {dnsDomain: k8s.example.com, podSubnet: 10.244.0.0/16}"
	for name, test := range map[string]struct {
		kubeadm, set, want string
	}{
		"kubeadm's":                  {kubeadm: other, want: "k8s.example.com"},
		"a domain from kubeadm only": {kubeadm: "networking: {dnsDomain: cluster.local}", want: "cluster.local"},
		"none":                       {kubeadm: "networking: {}", want: "cluster.local"},
		"the user's":                 {kubeadm: "networking: {}", set: "k8s.example.com", want: "k8s.example.com"},
		"the user's over kubeadm's":  {kubeadm: other, set: "other.example.com", want: "other.example.com"},
		"the user's domain instead of an invalid one": {kubeadm: "networking: {dnsDomain: \"a b\"}", set: "a.example.com", want: "a.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, _, _ := plainObjects(t)
			facts, err := plainReader(t, all, func(o client.Object) bool {
				return change(o, map[string]string{"kubeadm-config": test.kubeadm}, nil)
			}, false).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{
				Network: v1alpha1.NetworkSpec{ClusterDomain: test.set},
				Proxy:   v1alpha1.ProxySpec{HTTPProxy: "http://proxy:3128"}})
			if err != nil {
				t.Fatal(err)
			}
			if facts.ClusterDomain() != test.want {
				t.Errorf("the domain is %q", facts.ClusterDomain())
			}
			none := strings.Split(facts.Proxy.None, ",")
			if !slices.Contains(none, "."+test.want) || test.want != "cluster.local" &&
				slices.Contains(none, ".cluster.local") {
				t.Errorf("NO_PROXY is %v", none)
			}
		})
	}
}

// If the domain changed to the default, all nodes would be drained, and new pods would not find Services by their
// short names. So nodes must keep their domain.
func TestA60_ADomainThatNothingSaysAnyMoreIsStillTheOneThatNodesHave(t *testing.T) {
	t.Parallel()
	const domain = "k8s.example.com"
	all, _, _ := plainObjects(t)
	kubeadm := all[slices.IndexFunc(all, func(o client.Object) bool { return o.GetName() == "kubeadm-config" })]
	change(kubeadm, map[string]string{"kubeadm-config": "networking: {dnsDomain: " + domain + "}"}, nil)
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).Build()
	start := func() *cluster.Plain {
		r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
			Access: access(t, everything)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	check := func(when string, r *cluster.Plain, spec v1alpha1.WindowsMachineConfigSpec, want string, troubles int) {
		t.Helper()
		facts, err := r.Facts(t.Context(), spec)
		if err != nil || facts.ClusterDomain() != want || len(facts.Lacks) > 0 || len(facts.Troubles) != troubles {
			t.Errorf("%s the domain is %q, hosts wait for %v, troubles %v, %v",
				when, facts.ClusterDomain(), facts.Lacks, facts.Troubles, err)
		}
		for _, trouble := range facts.Troubles {
			if trouble.Reason != contract.ReasonClusterFactsIncomplete || !strings.Contains(trouble.Detail, "kubeadm-config") {
				t.Errorf("%s the trouble is %v", when, trouble)
			}
		}
	}
	none, r := v1alpha1.WindowsMachineConfigSpec{}, start()
	check("as kubeadm says,", r, none, domain, 0)
	remember(t, c, elsewhere, r)
	if err := c.Delete(t.Context(), kubeadm); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		check("without kubeadm's ConfigMap", r, none, domain, 1)
	}
	r = start()
	for range 2 {
		check("after a restart", r, none, domain, 1)
	}
	set := v1alpha1.WindowsMachineConfigSpec{Network: v1alpha1.NetworkSpec{ClusterDomain: "cluster.local"}}
	check("as the user says,", r, set, "cluster.local", 1)
}

// If kubeadm did not create the cluster, the default domain is correct, and no problem is reported.
func TestA60_AClusterThatKubeadmDidNotMakeHasTheUsualDomainWithoutTrouble(t *testing.T) {
	t.Parallel()
	all, _, _ := plainObjects(t)
	r := plainReader(t, all, func(o client.Object) bool {
		return o.GetName() != "kubeadm-config"
	}, false)
	facts, err := r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil || facts.ClusterDomain() != "cluster.local" || len(facts.Troubles) > 0 {
		t.Errorf("the domain is %q, troubles %v, %v", facts.ClusterDomain(), facts.Troubles, err)
	}
}

func TestA62_APullSecretThatIsNotThereLeavesNodesWhatTheyHave(t *testing.T) {
	t.Parallel()
	all, _, _ := plainObjects(t)
	facts, err := plainReader(t, all, nil, false).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{PullSecret: "gone"})
	if err != nil || len(facts.PullSecret) == 0 || len(facts.Rejected) != 1 ||
		!strings.Contains(facts.Rejected[0].Detail, elsewhere+"/gone") {
		t.Errorf("%q, %v, %v", facts.PullSecret, facts.Rejected, err)
	}
}

func TestA62_OnOpenShiftASettingThatContradictsTheClusterIsRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	spec := v1alpha1.WindowsMachineConfigSpec{
		APIServer: "https://other.example.com",
		Network:   v1alpha1.NetworkSpec{Type: v1alpha1.NetworkExternal, ClusterDomain: "other.example.com"},
		Proxy:     v1alpha1.ProxySpec{HTTPProxy: "http://other"}, PullSecret: "other",
		Mirrors: v1alpha1.MirrorsSpec{ImageDigestMirrors: []v1alpha1.ImageMirrors{{Source: "quay.io"}},
			ImageTagMirrors: []v1alpha1.ImageMirrors{{Source: "quay.io"}}},
	}
	all := objects(t, clustertest.Options{Platform: "None"})
	r := reader(t, all, interceptor.Funcs{}, nil)
	facts, err := r.Facts(t.Context(), spec)
	if err != nil || len(facts.Rejected) != 7 {
		t.Fatalf("%v, %v", facts.Rejected, err)
	}
	for _, p := range facts.Rejected {
		if p.Reason != contract.ReasonSettingNotHere {
			t.Errorf("reason %s", p.Reason)
		}
	}
	facts.Rejected = nil
	want, err := r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{
		Network: v1alpha1.NetworkSpec{Type: v1alpha1.NetworkOVNKubernetesHybrid}})
	if err != nil || len(want.Rejected) > 0 || want.APIServer != facts.APIServer || want.Proxy != facts.Proxy ||
		want.NetworkType != facts.NetworkType || facts.ClusterDomain() != "cluster.local" || len(want.Mirrors) != len(facts.Mirrors) {
		t.Errorf("the cluster's own settings are not in effect: %+v, %v", facts, err)
	}
}

// CRDs in OpenShift's group don't prove OpenShift, because copied manifests may also contain them.
func TestA60_OpenShiftIsRecognisedByItsInfrastructure(t *testing.T) {
	t.Parallel()
	const own, group = "windowsmachineconfig.openshift.io", "config.openshift.io"
	infrastructure := func(name string) []client.Object {
		return []client.Object{&configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: name}}}
	}
	resource := schema.GroupResource{Group: group, Resource: "infrastructures"}
	plain, _, _ := plainObjects(t)
	for name, test := range map[string]struct {
		groups  []string
		objects []client.Object
		err     error
		want    bool
		says    string
	}{
		"a plain cluster":                     {groups: []string{"apps", own, "operator.example.com"}, objects: plain},
		"OpenShift":                           {groups: []string{own, group}, objects: infrastructure("cluster"), want: true},
		"OpenShift with objects of kubeadm's": {groups: []string{own, group}, objects: append(infrastructure("cluster"), plain...), want: true},
		"a plain cluster with an empty CRD of OpenShift's": {groups: []string{own, group}, objects: plain},
		"a plain cluster with another Infrastructure":      {groups: []string{own, group}, objects: infrastructure("mine")},
		"a plain cluster with another kind of OpenShift's": {groups: []string{own, group}, err: &meta.NoKindMatchError{}},
		"a kind that is served no more":                    {groups: []string{own, group}, err: apierrors.NewNotFound(resource, "")},
		"a plain cluster where rights for OpenShift's kinds were left out": {groups: []string{own},
			err: apierrors.NewForbidden(resource, "cluster", nil)},
		"rights that are missing": {groups: []string{own, group},
			err: apierrors.NewForbidden(resource, "cluster", nil), says: "apply the operator's manifests again"},
		"an API server that does not answer just now":        {groups: []string{own, group}, err: errors.New("etcdserver: request timed out"), says: "timed out"},
		"an API server that has just started, without CRDs'": {groups: []string{"apps"}, says: "apply the operator's CRDs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(test.objects...).
				WithIndex(&configv1.Infrastructure{}, metav1.ObjectNameField,
					func(o client.Object) []string { return []string{o.GetName()} }).
				WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch,
					list client.ObjectList, options ...client.ListOption) error {
					if test.err != nil {
						return test.err
					}
					return c.List(ctx, list, options...)
				}}).Build()
			got, err := cluster.IsOpenShift(t.Context(), offered(test.groups), c)
			if got != test.want || (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("recognised as OpenShift: %v, %v", got, err)
			}
		})
	}
}

// offered returns API groups.
type offered []string

func (o offered) GroupsAndMaybeResources() (*metav1.APIGroupList,
	map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error) {
	list := &metav1.APIGroupList{}
	for _, name := range o {
		list.Groups = append(list.Groups, metav1.APIGroup{Name: name})
	}
	return list, nil, nil, nil
}

// Nodes that have joined still receive changes.
func TestA60_ARightThatOnlyHostsNeedKeepsOnlyHostsWaiting(t *testing.T) {
	t.Parallel()
	all, _, _ := plainObjects(t)
	facts, err := plainReader(t, all, nil, true).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil || len(facts.Lacks) != 1 || facts.Lacks[0].Reason != contract.ReasonBootstrapNotGranted {
		t.Errorf("hosts wait for %v, nodes for %v", facts.Lacks, err)
	}
}

// A user who upgrades by hand may forget the new rights. An upgrade restarts the operator.
func TestA60_NodesAreToldWhatChangesWhileNobodyMayReadServiceCIDRs(t *testing.T) {
	t.Parallel()
	isForbidden := false
	forbids := func(o any) error {
		switch o.(type) {
		case *networkingv1.ServiceCIDR, *networkingv1.ServiceCIDRList:
			if isForbidden {
				return apierrors.NewForbidden(networkingv1.Resource("servicecidrs"), "", errors.New("no"))
			}
		}
		return nil
	}
	newReader := func(without string) *cluster.Plain {
		all, _, _ := plainObjects(t)
		all = slices.DeleteFunc(all, func(o client.Object) bool { return o.GetName() == without })
		c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(all...).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
				options ...client.GetOption) error {
				return cmp.Or(forbids(o), c.Get(ctx, key, o, options...))
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				return cmp.Or(forbids(list), c.List(ctx, list, options...))
			}}).Build()
		r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
			Access: access(t, everything)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	says := func(problems []*contract.Problem) bool {
		return len(problems) > 0 && strings.Contains(problems[0].Detail, "the ServiceCIDR kubernetes may not be read")
	}
	r := newReader("")
	before, err := r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil {
		t.Fatal(err)
	}
	isForbidden = true
	facts, err := r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil || facts.ServiceNetwork != before.ServiceNetwork || len(facts.Lacks) > 0 || !says(facts.Troubles) ||
		!slices.Equal(facts.ServiceNetworks, before.ServiceNetworks) {
		t.Errorf("services %v, hosts wait for %v, troubles %v, %v", facts.ServiceNetworks, facts.Lacks, facts.Troubles, err)
	}
	// A restarted operator has no remembered value, and reads the service network from kubeadm's configuration.
	facts, err = newReader("").Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil || facts.ServiceNetwork.String() != "10.97.0.0/16" || !says(facts.Lacks) {
		t.Errorf("services %v, hosts wait for %v, %v", facts.ServiceNetwork, facts.Lacks, err)
	}
	_, err = newReader("kubeadm-config").Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if !onlyProblems(err) || !says(cluster.Problems(err)) {
		t.Errorf("without any prefix: %v", err)
	}
	// With a proxy, NO_PROXY contains the service networks, so they must be known.
	_, err = newReader("").Facts(t.Context(),
		v1alpha1.WindowsMachineConfigSpec{Proxy: v1alpha1.ProxySpec{HTTPProxy: "http://proxy:3128"}})
	if !onlyProblems(err) || !says(cluster.Problems(err)) {
		t.Errorf("with a proxy: %v", err)
	}
}

// An additional ServiceCIDR can give Services more addresses at any time.
func TestA54_AddressesOfEveryServiceCIDRAreReserved(t *testing.T) {
	t.Parallel()
	more := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"},
		Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.77.0.0/16", "fd77::/108"}}}
	plain, _, _ := plainObjects(t)
	for name, source := range map[string]cluster.Source{
		"plain":     plainReader(t, append(plain, more), nil, false),
		"OpenShift": reader(t, append(objects(t, clustertest.Options{}), more), interceptor.Funcs{}, nil),
	} {
		facts, err := source.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{"10.77.3.1", "fd77::1"} {
			address := netip.MustParseAddr(text)
			if !slices.ContainsFunc(facts.Reserved(), func(p netip.Prefix) bool { return p.Contains(address) }) {
				t.Errorf("%s: a host may have %s: %v", name, text, facts.Reserved())
			}
		}
	}
}

// Clusters before Kubernetes 1.33 don't have this kind.
func TestServiceCIDRsThatTheClusterDoesNotHaveAreNoProblem(t *testing.T) {
	t.Parallel()
	facts, err := reader(t, objects(t, clustertest.Options{}), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if _, is := list.(*networkingv1.ServiceCIDRList); is {
				return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "ServiceCIDR"}}
			}
			return c.List(ctx, list, options...)
		}}, nil).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil || len(facts.ServiceNetworks) != 1 {
		t.Errorf("%v, %v", facts.ServiceNetworks, err)
	}
}

// A kubelet may list any private address, and the addresses of IPv6 Services are private as well.
func TestA54_AddressesOfIPv6ServicesAreReserved(t *testing.T) {
	t.Parallel()
	all, _, _ := plainObjects(t)
	facts, err := plainReader(t, all, nil, false).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"fd00::1", "10.96.0.1", "fd01::7", "10.244.3.7"} {
		address := netip.MustParseAddr(text)
		if !slices.ContainsFunc(facts.Reserved(), func(p netip.Prefix) bool { return p.Contains(address) }) {
			t.Errorf("a host may have %s: %v", text, facts.Reserved())
		}
	}
}

// A user who upgrades by hand may forget a right. If nodes don't need the missing facts, they still get everything
// else, including serving certificates. If nodes need them, a problem with a fix is reported.
func TestA60_RightsThatAreMissingAreToldWithWhatToDo(t *testing.T) {
	t.Parallel()
	clients := kubernetesfake.NewClientset()
	clients.PrependReactor("create", "subjectaccessreviews",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(authorizationv1.Resource("subjectaccessreviews"), "", errors.New("no"))
		})
	var listing error
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(withFlannel(t, goodFlannel, "")...).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList,
			options ...client.ListOption) error {
			if _, ok := list.(*corev1.ServiceList); ok && listing != nil {
				return listing
			}
			return c.List(ctx, list, options...)
		}}).Build()
	options := cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
		Access: clients.AuthorizationV1().SubjectAccessReviews()}
	r, err := cluster.NewPlain(options)
	if err != nil {
		t.Fatal(err)
	}
	const todo = "apply the operator's manifests again to restore its rights"
	facts, err := r.Facts(t.Context(), onFlannel())
	if err != nil || facts.MayJoin() != nil || facts.Unknown() != nil || len(facts.Troubles) != 2 {
		t.Fatalf("hosts wait for %v, troubles are %v, %v", facts.Lacks, facts.Troubles, err)
	}
	for i, user := range []string{"system:node:windows", "node-bootstrapper"} {
		if p := facts.Troubles[i]; p.Reason != contract.ReasonClusterFactsIncomplete ||
			!strings.Contains(p.Detail, user) || !strings.Contains(p.Detail, todo) {
			t.Errorf("the trouble is %v", p)
		}
	}
	listing = apierrors.NewForbidden(corev1.Resource("services"), "", errors.New("no"))
	if r, err = cluster.NewPlain(options); err != nil { // this reader has never read Services
		t.Fatal(err)
	}
	_, err = r.Facts(t.Context(), onFlannel())
	if problem, ok := contract.AsProblem(err); !ok || !onlyProblems(err) ||
		problem.Reason != contract.ReasonClusterFactsIncomplete || !strings.Contains(problem.Detail, "Services") ||
		!strings.Contains(problem.Detail, todo) {
		t.Errorf("if Services can't be listed: %v", err)
	}
}
