package config_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// registers lets the kubelet of a new Node register the Node after a change.
func registers(t *testing.T, lab *cluster.Cluster, change func(*corev1.Node)) attempt {
	t.Helper()
	return func(ctx context.Context, _ kubernetes.Interface) error {
		name := "new-" + strings.ToLower(t.Name()[strings.LastIndex(t.Name(), "_")+1:])
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: windowsLabels()}}
		change(node)
		kubelet := as(t, lab, contract.KubeletUserPrefix+name, contract.KubeletGroup)
		_, err := kubelet.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

// Other nodes send traffic for a Node's pod network to that Node. flannel reads the network in the spec and the
// route in annotations. OVN-Kubernetes reads both in its own annotation. A kubelet that could write them could
// attract traffic for other nodes. The API server itself lets a kubelet set the spec field once.
func TestA54_AKubeletDrawsNoTrafficOfOtherNodes(t *testing.T) {
	t.Parallel()
	lab := common(t)
	admin := connect(t, lab.Admin())
	a, b := two(t, admin)
	if err := patch(b, `{"spec":{"podCIDR":"10.244.7.0/24","podCIDRs":["10.244.7.0/24"]}}`)(t.Context(),
		admin); err != nil {
		t.Fatal(err)
	}
	kubelet := as(t, lab, contract.KubeletUserPrefix+a, contract.KubeletGroup)
	honest := as(t, lab, contract.KubeletUserPrefix+b, contract.KubeletGroup)
	untilKubeletsAreBound(t, lab)
	tries(t, kubelet, map[string]attempt{
		"sets its pod network":        patch(a, `{"spec":{"podCIDR":"10.244.1.0/24"}}`),
		"sets its pod networks":       patch(a, `{"spec":{"podCIDRs":["10.244.1.0/24"]}}`),
		"writes flannel's lease":      patch(a, lease),
		"writes it by its status":     patch(a, lease, "status"),
		"says flannel's next address": annotate(a, "flannel.alpha.coreos.com/public-ip-overwrite"),
		"sets its hybrid network":     annotate(a, contract.HybridSubnetAnnotation),
		"registers with a pod network": registers(t, lab, func(node *corev1.Node) {
			node.Spec.PodCIDR, node.Spec.PodCIDRs = "10.244.1.0/24", []string{"10.244.1.0/24"}
		}),
		"registers with flannel's lease": registers(t, lab, func(node *corev1.Node) {
			node.Annotations = map[string]string{"flannel.alpha.coreos.com/kube-subnet-manager": "true"}
		}),
		"registers as Linux with a pod network": registers(t, lab, func(node *corev1.Node) {
			node.Labels[corev1.LabelOSStable], node.Spec.PodCIDR = string(corev1.Linux), "10.244.1.0/24"
		}),
		"registers with a hybrid network": registers(t, lab, func(node *corev1.Node) {
			node.Annotations = map[string]string{contract.HybridSubnetAnnotation: "10.132.1.0/24"}
		}),
	}, refusedByPolicy)
	tries(t, honest, map[string]attempt{
		"names its network as it is": patch(b, `{"spec":{"podCIDR":"10.244.7.0/24"}}`),
		"annotates itself":           annotate(b, contract.HybridMACAnnotation),
		"reports its status":         patch(b, `{"status":{"nodeInfo":{"kernelVersion":"10.0"}}}`, "status"),
		"registers as kubelets do": registers(t, lab, func(node *corev1.Node) {
			node.Annotations = map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
			node.Spec = corev1.NodeSpec{ProviderID: "azure:///vm", Unschedulable: true,
				Taints: []corev1.Taint{{Key: "os", Value: "Windows", Effect: corev1.TaintEffectNoSchedule}}}
		}),
	}, func(err error) bool { return err == nil })
}

// If a Node has a finalizer before the operator has marked it, the finalizer could keep the Node for ever. If a Node
// has owners and they are deleted, the Node is deleted as well, and could be registered again without the operator's
// cordon.
func TestA54_AKubeletDoesNotDecideWhenItsNodeGoes(t *testing.T) {
	t.Parallel()
	lab := common(t)
	a := register(t, connect(t, lab.Admin()), metav1.ObjectMeta{GenerateName: "win-"})
	untilKubeletsAreBound(t, lab)
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: "default", UID: "a"}
	tries(t, as(t, lab, contract.KubeletUserPrefix+a, contract.KubeletGroup), map[string]attempt{
		"adds a finalizer to a Node that nobody marked": patch(a, `{"metadata":{"finalizers":["example.com/stay"]}}`),
		"adds it by its status": patch(a,
			`{"metadata":{"finalizers":["example.com/stay"]}}`, "status"),
		"adds an owner": patch(a,
			`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":"default","uid":"a"}]}}`),
		"calls itself a control plane, whose Nodes the operator may not touch": patch(a,
			`{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`),
		"registers as one": registers(t, lab, func(node *corev1.Node) {
			node.Labels["node-role.kubernetes.io/control-plane"] = ""
		}),
		"registers with a finalizer": registers(t, lab, func(node *corev1.Node) {
			node.Finalizers = []string{"example.com/stay"}
		}),
		"registers with an owner": registers(t, lab, func(node *corev1.Node) {
			node.OwnerReferences = []metav1.OwnerReference{owner}
		}),
	}, apierrors.IsForbidden)
}

// requests creates a certificate request with this metadata.
func requests(t *testing.T, meta metav1.ObjectMeta) attempt {
	t.Helper()
	request := daemonRequest(t, "")
	meta.GenerateName = "csr-"
	request.ObjectMeta = meta
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CertificatesV1().CertificateSigningRequests().Create(ctx, request,
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
}

// Kubernetes deletes certificate requests after a day at most, except requests with a finalizer. The operator's cache
// holds all existing requests.
func TestA51_NoNodeAndNoHostThatJoinsMakesARequestThatStays(t *testing.T) {
	t.Parallel()
	lab := common(t)
	config, _, err := lab.ServiceAccountConfig(t.Context(), contract.OperatorNamespace, contract.BootstrapServiceAccount,
		time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	stays := requests(t, metav1.ObjectMeta{Finalizers: []string{"example.com/stay"}})
	owned := requests(t, metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1",
		Kind: "Namespace", Name: "default", UID: "a"}}})
	kubelet := as(t, lab, contract.KubeletUserPrefix+"win-a", contract.KubeletGroup)
	until(t, func(ctx context.Context) bool { return refusedByPolicy(stays(ctx, kubelet)) })
	for who, c := range map[string]kubernetes.Interface{
		"a kubelet":                kubelet,
		"a host that joins":        connect(t, config),
		"a kubelet without groups": as(t, lab, contract.KubeletUserPrefix+"win-a", "system:masters"),
	} {
		t.Run(who, func(t *testing.T) {
			tries(t, c, map[string]attempt{"asks with a finalizer": stays, "asks with an owner": owned}, refusedByPolicy)
			tries(t, c, map[string]attempt{
				"asks as kubelets do": requests(t, metav1.ObjectMeta{}),
				"asks with a label and an annotation, as another cluster's kubelets may": requests(t, metav1.ObjectMeta{
					Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}}),
			}, func(err error) bool { return err == nil })
		})
	}
	tries(t, connect(t, lab.Admin()), map[string]attempt{"others ask with a finalizer": stays},
		func(err error) bool { return err == nil })
}

// untilKubeletsAreBound waits until the API server enforces the policy for kubelets. It does so shortly after the
// policy was created.
func untilKubeletsAreBound(t *testing.T, lab *cluster.Cluster) {
	t.Helper()
	until(t, func(ctx context.Context) bool {
		return refusedByPolicy(registers(t, lab, func(node *corev1.Node) {
			node.Annotations = map[string]string{contract.InstanceAnnotation: "ns/another"}
		})(ctx, nil))
	})
}
