package cluster_test

import (
	"context"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// onFlannel returns settings with the network type flannel.
func onFlannel() v1alpha1.WindowsMachineConfigSpec {
	return v1alpha1.WindowsMachineConfigSpec{Network: v1alpha1.NetworkSpec{Type: v1alpha1.NetworkFlannel}}
}

// withFlannel returns the objects of a cluster with flannel's configuration in conf, and kubeadm's podSubnet in pods.
// If conf is empty, flannel's ConfigMap is missing.
func withFlannel(t *testing.T, conf, pods string) []client.Object {
	t.Helper()
	all, _, _ := plainObjects(t)
	for _, o := range all {
		if m, ok := o.(*corev1.ConfigMap); ok && m.Name == "kubeadm-config" {
			m.Data["ClusterConfiguration"] = "networking: {serviceSubnet: 10.97.0.0/16, podSubnet: \"" + pods + "\"}"
		}
	}
	if conf == "" {
		return all
	}
	return append(all, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-flannel",
		Name: "kube-flannel-cfg"}, Data: map[string]string{"net-conf.json": conf, "cni-conf.json": "{}"}})
}

const goodFlannel = `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":4096,"Port":4789}}`

func TestA60_FlannelsConfigurationIsReadWhereItIsTheNetwork(t *testing.T) {
	t.Parallel()
	for _, pods := range []string{"10.244.0.0/16", "10.244.128.0/17", ""} {
		facts, err := plainReader(t, withFlannel(t, goodFlannel, pods), nil, false).Facts(t.Context(), onFlannel())
		if err != nil {
			t.Fatal(err)
		}
		if facts.NetworkType != blueprint.NetworkFlannel || facts.Flannel.VNI != 4096 ||
			facts.Flannel.Network.String() != "10.244.0.0/16" || len(facts.PodNetworks) != 1 {
			t.Errorf("pods use %q: %+v", pods, facts.Network)
		}
	}
	facts, err := plainReader(t, withFlannel(t, "{", ""), nil, false).Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{})
	if err != nil || facts.NetworkType != blueprint.NetworkExternal {
		t.Errorf("on another network: %+v, %v", facts.Network, err)
	}
}

// If a user deletes the WindowsMachineConfig, it is created again with defaults, so the network type is unset. If a
// user applies a WindowsMachineConfig without the field, the type is unset as well. In both cases nodes must keep
// flanneld and kube-proxy.
func TestA60_ANetworkThatNothingSaysAnyMoreIsStillTheOneThatNodesHave(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(withFlannel(t, goodFlannel, "10.244.0.0/16")...).Build()
	start := func() *cluster.Plain {
		r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
			Access: access(t, everything)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	check := func(when string, r *cluster.Plain, set v1alpha1.NetworkType, want string, troubles int) {
		t.Helper()
		facts, err := r.Facts(t.Context(), v1alpha1.WindowsMachineConfigSpec{Network: v1alpha1.NetworkSpec{Type: set}})
		if err != nil || facts.NetworkType != want || len(facts.Lacks) > 0 || len(facts.Troubles) != troubles {
			t.Errorf("%s the network is %s, hosts wait for %v, troubles %v, %v", when, facts.NetworkType, facts.Lacks,
				facts.Troubles, err)
		}
		for _, trouble := range facts.Troubles {
			if trouble.Reason != contract.ReasonClusterFactsIncomplete ||
				!strings.Contains(trouble.Detail, "spec.network.type") {
				t.Errorf("%s the trouble is %v", when, trouble)
			}
		}
	}
	check("where nothing was published", start(), "", blueprint.NetworkExternal, 0)
	r := start()
	check("as the setting says,", r, v1alpha1.NetworkFlannel, blueprint.NetworkFlannel, 0)
	check("while another revision is published,", r, "", blueprint.NetworkFlannel, 1)
	remember(t, c, elsewhere, r)
	r = start()
	for range 2 {
		check("after a restart", r, "", blueprint.NetworkFlannel, 1)
	}
	check("as the user says,", r, v1alpha1.NetworkExternal, blueprint.NetworkExternal, 0)
	check("until that is published,", r, "", blueprint.NetworkExternal, 0)
}

func TestA60_WhatOfFlannelWindowsDoesNotTakeIsAProblemWithTheFix(t *testing.T) {
	t.Parallel()
	vxlan := func(more string) string {
		return `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":4096,"Port":4789` + more + `}}`
	}
	for name, c := range map[string]struct{ conf, pods, says string }{
		"not there":                 {says: "does not exist: install flannel"},
		"malformed":                 {conf: `{"Network":`, says: "is not the JSON"},
		"of another kind":           {conf: `[]`, says: "is not the JSON"},
		"huge":                      {conf: strings.Repeat(" ", 1<<20) + goodFlannel, says: "is not the JSON"},
		"host-gw":                   {conf: `{"Network":"10.244.0.0/16","Backend":{"Type":"host-gw"}}`, says: "set it to vxlan"},
		"no backend":                {conf: `{"Network":"10.244.0.0/16"}`, says: "set it to vxlan"},
		"as flannel's own manifest": {conf: `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan"}}`, says: "set 4096"},
		"the VNI of Linux": {conf: `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":1,"Port":4789}}`,
			says: "Backend.VNI is 1"},
		"a VNI of 24 bits": {conf: `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":70000,"Port":4789}}`,
			says: "Backend.VNI is 70000"},
		"the port of Linux": {conf: `{"Network":"10.244.0.0/16","Backend":{"Type":"vxlan","VNI":4096}}`,
			says: "Backend.Port is 8472"},
		"direct routing":  {conf: vxlan(`,"DirectRouting":true`), says: "DirectRouting"},
		"group policy":    {conf: vxlan(`,"GBP":true`), says: "GBP"},
		"no network":      {conf: `{"Backend":{"Type":"vxlan","VNI":4096,"Port":4789}}`, says: "is not an IPv4 prefix"},
		"another network": {conf: goodFlannel, pods: "10.32.0.0/16", says: "podSubnet 10.32.0.0/16"},
		"a smaller one":   {conf: goodFlannel, pods: "10.244.0.0/14", says: "podSubnet 10.244.0.0/14"},
		"dual-stack, by flannel": {conf: strings.Replace(goodFlannel, "{", `{"EnableIPv6":true,"IPv6Network":"fd01::/48",`, 1),
			says: "dual-stack"},
		"dual-stack, by kubeadm": {conf: goodFlannel, pods: "10.244.0.0/16,fd01::/48", says: "dual-stack"},
		"IPv6":                   {conf: strings.Replace(goodFlannel, "{", `{"EnableIPv4":false,`, 1), says: "need IPv4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := plainReader(t, withFlannel(t, c.conf, c.pods), nil, false).Facts(t.Context(), onFlannel())
			problem, ok := contract.AsProblem(err)
			if !ok || problem.Reason != contract.ReasonFlannelUnsupported || !strings.Contains(problem.Detail, c.says) ||
				!strings.Contains(problem.Detail, "kube-flannel") && !strings.Contains(problem.Detail, "kubeadm-config") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestA60_ThatTheRightsForFlannelAreMissingSaysWhichManifestsHaveThem(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(withFlannel(t, goodFlannel, "")...).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
			o client.Object, options ...client.GetOption) error {
			if key.Namespace == "kube-flannel" {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, key.Name, nil)
			}
			return c.Get(ctx, key, o, options...)
		}}).Build()
	r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
		Access: access(t, everything)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.Facts(t.Context(), onFlannel()); err == nil ||
		!strings.Contains(err.Error(), "config/kubernetes/flannel") {
		t.Errorf("%v", err)
	}
}

// On clusters that kubeadm created, kubelets aren't allowed to read EndpointSlices. On Windows nodes, kube-proxy uses
// kubelet's identity.
func TestA60_ThatKubeProxyMayNotReadEndpointsIsSaidWhereTheOperatorRunsIt(t *testing.T) {
	t.Parallel()
	c := fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(withFlannel(t, goodFlannel, "")...).Build()
	r, err := cluster.NewPlain(cluster.Options{Cached: c, Live: c, Version: server("v1.36.3"), Namespace: elsewhere,
		Access: access(t, func(s authorizationv1.SubjectAccessReviewSpec) bool {
			return s.ResourceAttributes.Resource != "endpointslices"
		})})
	if err != nil {
		t.Fatal(err)
	}
	for network, want := range map[v1alpha1.NetworkType]int{v1alpha1.NetworkFlannel: 1, v1alpha1.NetworkExternal: 0} {
		facts, err := r.Facts(t.Context(),
			v1alpha1.WindowsMachineConfigSpec{Network: v1alpha1.NetworkSpec{Type: network}})
		if err != nil || len(facts.Troubles) != want {
			t.Errorf("%s: %v, %v", network, facts.Troubles, err)
		}
	}
}
