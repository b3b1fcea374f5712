package cluster_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
)

// expanding returns a few hundred bytes of YAML that expand to ten thousand million strings.
func expanding() string {
	text := "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
	for i := 1; i < 10; i++ {
		text += fmt.Sprintf("a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i-1), 10), ","))
	}
	return text
}

// Users can write any content to these objects. If the objects contradict each other, hosts must not get any of the
// content, and a condition must contain the object's name and the fix.
func TestA60_FactsThatContradictThemselvesAreProblemsWithTheFix(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	long := strings.Repeat("a", 100<<10)
	info := func(server string) map[string]string {
		return map[string]string{"cluster-info": "clusters: [{name: a, cluster: {server: \"" + server + "\"}}]"}
	}
	kubeadm := func(text string) map[string]string { return map[string]string{"kubeadm-config": text} }
	flannel := func(network string) map[string]string {
		return map[string]string{
			"kubeadm-config": "networking: {}",
			"kube-flannel-cfg": `{"Network":"` + network +
				`","Backend":{"Type":"vxlan","VNI":4096,"Port":4789}}`,
		}
	}
	for name, test := range map[string]struct {
		data     map[string]string
		services []string
		spec     v1alpha1.WindowsMachineConfigSpec
		says     []string
	}{
		"an API server with a path": {data: info("https://api.example.com:6443/k8s/clusters/c-1"),
			says: []string{"cluster-info", "spec.apiServer"}},
		"a setting with a path": {spec: v1alpha1.WindowsMachineConfigSpec{APIServer: "https://api.example.com/k8s"},
			says: []string{"spec.apiServer", "https://<host>:<port>"}},
		"an API server without TLS": {data: info("http://api.example.com:8080"), says: []string{"cluster-info"}},
		"an invalid port":           {data: info("https://api.example.com:66666"), says: []string{"legal port"}},
		"an address with a zone":    {data: info("https://[fe80::1%25eth0]:6443"), says: []string{"legal host"}},
		"a name with a line break":  {data: info(`https://api.example.com\n.evil:6443`), says: []string{"cluster-info"}},
		"a URL with a password":     {data: info("https://admin:" + secret + "@api.example.com"), says: []string{"cluster-info"}},
		"a password in an invalid URL": {data: info("https://admin:" + secret + "%zz@api.example.com"),
			says: []string{"cluster-info"}},
		"a long URL":       {data: info("https://api.example.com/" + long), says: []string{"cluster-info"}},
		"a long name":      {data: info("https://" + long), says: []string{"cluster-info"}},
		"several clusters": {data: map[string]string{"cluster-info": "clusters: [{name: a, cluster: {server: \"https://a\"}}, {name: b, cluster: {server: \"https://b\"}}]"}, says: []string{"cluster-info", "several"}},
		"a cluster-info that expands": {data: map[string]string{"cluster-info": expanding()},
			says: []string{"cluster-info"}},

		"a kubeadm-config that is broken":  {data: kubeadm("networking: {podSubnet: [\n"), says: []string{"kubeadm-config", "ClusterConfiguration"}},
		"a kubeadm-config of another kind": {data: kubeadm("networking: {podSubnet: [10.244.0.0/16]}"), says: []string{"kubeadm-config"}},
		"a kubeadm-config that is huge":    {data: kubeadm("# " + long), says: []string{"kubeadm-config"}},
		"a kubeadm-config that expands":    {data: kubeadm(expanding()), says: []string{"kubeadm-config"}},
		"an invalid podSubnet": {data: kubeadm("networking: {podSubnet: \"10.244.0.0/16,10.300.0.0/16\"}"),
			says: []string{"kubeadm-config", "podSubnet", "10.300.0.0/16"}},
		"an invalid long podSubnet": {data: kubeadm("networking: {podSubnet: " + long[:50<<10] + "}"),
			says: []string{"kubeadm-config", "podSubnet"}},
		"a domain with a line break": {data: kubeadm(`networking: {dnsDomain: "k8s.example.com\nevil"}`),
			says: []string{"kubeadm-config", "dnsDomain", "spec.network.clusterDomain"}},
		"a domain that is an option": {data: kubeadm("networking: {dnsDomain: \"--x=y\"}"),
			says: []string{"kubeadm-config", "dnsDomain"}},
		"a domain with a list of exceptions": {data: kubeadm("networking: {dnsDomain: \"a,*\"}"),
			says: []string{"kubeadm-config", "dnsDomain"}},
		"a long domain": {data: kubeadm("networking: {dnsDomain: " + long[:50<<10] + "}"),
			says: []string{"kubeadm-config", "dnsDomain"}},
		"a setting that is no domain": {spec: v1alpha1.WindowsMachineConfigSpec{
			Network: v1alpha1.NetworkSpec{ClusterDomain: ".example.com"}}, says: []string{"spec.network.clusterDomain"}},
		"a podSubnet that Windows can't route": {data: kubeadm("networking: {podSubnet: 240.0.0.0/8}"),
			says: []string{"kubeadm-config", "class E"}},
		"services that Windows can't route": {services: []string{"250.0.0.0/16"}, says: []string{"ServiceCIDR", "class E"}},
		"services with few addresses":       {services: []string{"10.96.0.0/29"}, says: []string{"ServiceCIDR", "sixteen"}},
		"an invalid service network": {data: kubeadm("networking: {serviceSubnet: all}"), services: []string{},
			says: []string{"IPv4 prefix of services"}},

		"an API server at an address of Services": {data: info("https://10.96.0.1"),
			says: []string{"APIServerInternal", "cluster-info", "10.96.0.0/12", "spec.apiServer"}},
		"an API server at an address of pods": {data: info("https://10.244.3.4:6443"),
			says: []string{"APIServerInternal", "10.244.0.0/16"}},
		"an API server by the name of its Service": {data: info("https://kubernetes.default.svc:443"),
			says: []string{"APIServerInternal", "kubernetes.default.svc"}},
		"a setting with the name of a Service": {
			spec: v1alpha1.WindowsMachineConfigSpec{APIServer: "https://api.infra.svc.cluster.local:6443"},
			says: []string{"APIServerInternal", "spec.apiServer"}},
		"an API server by the name of a Service in the cluster's domain": {data: map[string]string{
			"cluster-info":   "clusters: [{name: a, cluster: {server: \"https://api.infra.svc.k8s.example.com:6443\"}}]",
			"kubeadm-config": "networking: {dnsDomain: k8s.example.com}"},
			says: []string{"APIServerInternal", "cluster-info"}},
		"pods among the Services": {data: kubeadm("networking: {podSubnet: 10.100.0.0/16}"),
			says: []string{"NetworksOverlap", "10.100.0.0/16", "10.96.0.0/12"}},
		"Services among the pods": {data: kubeadm("networking: {podSubnet: 10.0.0.0/8}"),
			says: []string{"NetworksOverlap", "10.0.0.0/8", "10.96.0.0/12"}},

		"flannel in what Windows can't route": {data: flannel("240.0.0.0/8"), says: []string{"kube-flannel-cfg", "class E"}},
		"flannel among the services":          {data: flannel("10.96.0.0/16"), says: []string{"kube-flannel-cfg", "10.96.0.0/12"}},
		"flannel everywhere":                  {data: flannel("0.0.0.0/0"), says: []string{"kube-flannel-cfg", "10.96.0.0/12"}},
		"flannel where no node has a part":    {data: flannel("10.244.0.0/31"), says: []string{"kube-flannel-cfg", "10.244.0.0/31"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, _, _ := plainObjects(t)
			if _, has := test.data["kube-flannel-cfg"]; has {
				all, test.spec = withFlannel(t, "{}", ""), onFlannel()
			}
			_, err := plainReader(t, all, func(o client.Object) bool {
				return change(o, test.data, test.services)
			}, false).Facts(t.Context(), test.spec)
			problems := cluster.Problems(err)
			if len(problems) == 0 || !onlyProblems(err) {
				t.Fatalf("problems %v of %v", problems, err)
			}
			text := err.Error()
			for _, p := range problems {
				text += " " + string(p.Reason)
				if p.Reason.Fix() == "" || len(p.Detail) > 1000 || strings.ContainsAny(p.Detail, "\r\n") ||
					strings.Contains(p.Detail, secret) {
					t.Errorf("%s: %.2000q", p.Reason, p.Detail)
				}
			}
			for _, words := range test.says {
				if !strings.Contains(text, words) {
					t.Errorf("%.1000q lacks %s", text, words)
				}
			}
		})
	}
}

// change replaces the content of the ConfigMaps that are keys of data, and the prefixes of the ServiceCIDR. If services
// is empty, the ServiceCIDR is missing, as on an older API server.
func change(o client.Object, data map[string]string, services []string) bool {
	switch object := o.(type) {
	case *corev1.ConfigMap:
		if text, has := data[object.Name]; has {
			key := map[string]string{"cluster-info": "kubeconfig", "kubeadm-config": "ClusterConfiguration",
				"kube-flannel-cfg": "net-conf.json"}[object.Name]
			object.Data[key] = text
		}
	case *networkingv1.ServiceCIDR:
		if services != nil {
			object.Spec.CIDRs = services
			return len(services) > 0
		}
	}
	return true
}

// Missing values in kubeadm's configuration are no problem. For example, podSubnet is missing if the pod network's
// plugin has its own prefixes.
func TestA60_AClusterConfigurationWithoutAPodSubnetIsNoProblem(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"nothing at all": "", "no networking": "apiVersion: kubeadm.k8s.io/v1beta4", "no podSubnet": "networking: {dnsDomain: cluster.local}",
		"an empty one": "networking: {podSubnet: \"\"}", "no more than null": "null",
	} {
		all, _, _ := plainObjects(t)
		facts, err := plainReader(t, all, func(o client.Object) bool {
			return change(o, map[string]string{"kubeadm-config": text}, nil)
		}, false).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
		if err != nil || len(facts.PodNetworks) > 0 || facts.ServiceNetwork.String() != "10.96.0.0/12" {
			t.Errorf("%s: %v, %v", name, facts.PodNetworks, err)
		}
	}
}
