package config_test

import (
	"context"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// lease is a patch of the annotations that flanneld writes on a Windows Node.
const lease = `{"metadata":{"annotations":{"flannel.alpha.coreos.com/backend-type":"vxlan",
"flannel.alpha.coreos.com/backend-data":"{\"VNI\":4096,\"VtepMAC\":\"00:15:5d:01:02:03\"}",
"flannel.alpha.coreos.com/public-ip":"10.0.0.5","flannel.alpha.coreos.com/kube-subnet-manager":"true"}}}`

// leaseWith returns such a patch with other data for the tunnel.
func leaseWith(data string) string {
	return fmt.Sprintf(`{"metadata":{"annotations":{"flannel.alpha.coreos.com/backend-data":%q}}}`, data)
}

func TestA60_FlanneldWritesItsAnnotationsOfItsOwnNodeAndNothingElse(t *testing.T) {
	t.Parallel()
	lab := withFlannel(t)
	admin := connect(t, lab.Admin())
	a, b := two(t, admin)
	daemon := as(t, lab, contract.DaemonUserPrefix+a, contract.DaemonGroup)
	account := contract.FlannelServiceAccount
	until(t, func(ctx context.Context) bool {
		return refusedByPolicy(bound(account, "Node", b, 3600)(ctx, daemon))
	})
	tries(t, daemon, map[string]attempt{
		"a token that nothing ends": bound(account, "", "", 3600),
		"a token for a day":         bound(account, "Node", a, 24*3600),
		"a token for a cloud":       forAudience(account, a, "sts.amazonaws.com"),
	}, apierrors.IsForbidden)
	token, err := requestToken(t.Context(), daemon, account, "Node", a, 3600)
	if err != nil {
		t.Fatal(err)
	}
	flanneld := withToken(t, lab, token)
	until(t, func(ctx context.Context) bool { return refusedByPolicy(patch(b, lease, "status")(ctx, flanneld)) })
	tries(t, flanneld, map[string]attempt{
		"the lease of another Node":  patch(b, lease, "status"),
		"its lease, past the status": patch(a, lease),
		// Linux nodes send all traffic for a MAC address to one node: the last node that claims the MAC address.
		"A54 the MAC address of a Linux node": patch(a, leaseWith(`{"VNI":4096,"VtepMAC":"ee:8d:cf:69:b3:7c"}`), "status"),
		"A54 a second MAC address": patch(a, leaseWith(
			`{"VNI":4096,"VtepMAC":"00:15:5d:01:02:03","VtepMAC":"ee:8d:cf:69:b3:7c"}`), "status"),
		"A54 a MAC address by another spelling": patch(a, leaseWith(`{"VNI":4096,"vtepmac":"EE-8D-CF-69-B3-7C"}`),
			"status"),
		"an annotation of others": patch(a, `{"metadata":{"annotations":{"a":"b"}}}`, "status"),
		"an annotation less":      patch(a, `{"metadata":{"annotations":{"example.com/kept":null}}}`, "status"),
		"an address for others": patch(a,
			`{"metadata":{"annotations":{"flannel.alpha.coreos.com/public-ip-overwrite":"10.0.0.6"}}}`, "status"),
		"a label":          patch(a, zone, "status"),
		"an address":       patchStatus(a),
		"that it is ready": patch(a, `{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status"),
		"a finalizer":      patch(a, `{"metadata":{"finalizers":["example.com/stay"]}}`, "status"),
		"a cordon":         patch(a, `{"spec":{"unschedulable":true}}`),
		"another Node":     makeNode,
		"a secret":         readSecret(contract.OperatorNamespace, contract.PrivateKeySecret),
	}, apierrors.IsForbidden)
	tries(t, flanneld, map[string]attempt{
		"its lease, while it makes the network": patch(a, leaseWith(`{"VNI":4096,"VtepMAC":""}`), "status"),
		"its lease again":                       patch(a, lease, "status"),
		"all Nodes": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err
		},
	}, func(err error) bool { return err == nil })
	node, err := admin.CoreV1().Nodes().Get(t.Context(), a, metav1.GetOptions{})
	if err != nil || node.Annotations["flannel.alpha.coreos.com/public-ip"] != "10.0.0.5" ||
		node.Annotations["example.com/kept"] != "yes" || node.Spec.Unschedulable || len(node.Status.Addresses) > 0 {
		t.Errorf("the node is %+v, %v", node, err)
	}
	free, err := requestToken(t.Context(), admin, account, "", "", 3600)
	if err != nil {
		t.Fatal(err)
	}
	tries(t, withToken(t, lab, free), map[string]attempt{"a lease without a Node": patch(a, lease, "status")},
		refusedByPolicy)
}

// On Windows nodes, kube-proxy uses kubelet's identity. kube-proxy's rights must not let a kubelet read all Nodes, or
// endpoints other than EndpointSlices, because the Node authorizer restricts a kubelet to its own Node.
func TestA54_KubeProxysRightsShowAKubeletNoOtherNode(t *testing.T) {
	t.Parallel()
	lab := withFlannel(t)
	admin := connect(t, lab.Admin())
	a, b := two(t, admin)
	proxy := as(t, lab, contract.KubeletUserPrefix+a, contract.KubeletGroup)
	allowed := map[string]attempt{
		"its own Node": listNode(a),
		"Services": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Services("").List(ctx, metav1.ListOptions{})
			return err
		},
		"EndpointSlices": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.DiscoveryV1().EndpointSlices("").List(ctx, metav1.ListOptions{})
			return err
		},
		"ServiceCIDRs": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.NetworkingV1().ServiceCIDRs().List(ctx, metav1.ListOptions{})
			return err
		},
	}
	until(t, func(ctx context.Context) bool { return allowed["EndpointSlices"](ctx, proxy) == nil })
	tries(t, proxy, allowed, func(err error) bool { return err == nil })
	tries(t, proxy, map[string]attempt{
		"all Nodes": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return err
		},
		"another Node": func(ctx context.Context, c kubernetes.Interface) error {
			_, err := c.CoreV1().Nodes().Get(ctx, b, metav1.GetOptions{})
			return err
		},
	}, apierrors.IsForbidden)
}

// applyFlannel applies the manifests for nodes on flannel's network.
func applyFlannel(ctx context.Context, lab *cluster.Cluster) error {
	if err := offer(ctx, lab, "kube-flannel"); err != nil {
		return err
	}
	_, err := kubectl(ctx, lab, "apply", "--server-side", "-k", "kubernetes/flannel")
	return err
}
