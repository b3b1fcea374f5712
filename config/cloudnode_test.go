package config_test

import (
	"context"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// uninitialized is the taint that Azure's node manager removes.
const uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"

// bound requests a token as a daemon does.
func bound(account, kind, node string, seconds int64) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		_, err := requestToken(ctx, c, account, kind, node, seconds)
		return err
	}
}

func requestToken(ctx context.Context, c kubernetes.Interface, account, kind, node string,
	seconds int64) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	if kind != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: kind, Name: node}
	}
	answer, err := c.CoreV1().ServiceAccounts(contract.OperatorNamespace).CreateToken(ctx, account, request,
		metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return answer.Status.Token, nil
}

// forAudience requests a token for another service than the API server, and otherwise as a daemon does.
func forAudience(account, node string, audiences ...string) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: audiences, ExpirationSeconds: new(int64(3600)),
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Node", Name: node}}}
		_, err := c.CoreV1().ServiceAccounts(contract.OperatorNamespace).CreateToken(ctx, account, request,
			metav1.CreateOptions{})
		return err
	}
}

func TestA40_ADaemonRequestsTokensForItsOwnNodeOnly(t *testing.T) {
	t.Parallel()
	lab := common(t)
	admin := connect(t, lab.Admin())
	a, b := two(t, admin)
	daemon := as(t, lab, contract.DaemonUserPrefix+a, contract.DaemonGroup)
	account := contract.CloudNodeServiceAccount
	until(t, func(ctx context.Context) bool {
		return refusedByPolicy(bound(account, "Node", b, 3600)(ctx, daemon))
	})
	refused := func(err error) bool { return apierrors.IsForbidden(err) }
	tries(t, daemon, map[string]attempt{
		"for another Node":     bound(account, "Node", b, 3600),
		"for a Secret":         bound(account, "Secret", "windows-services-1", 3600),
		"that nothing ends":    bound(account, "", "", 3600),
		"for a day":            bound(account, "Node", a, 24*3600),
		"for a cloud":          forAudience(account, a, "sts.amazonaws.com"),
		"for a cloud, too":     forAudience(account, a, "https://kubernetes.default.svc", "api://azure"),
		"for one like it":      forAudience(account, a, "https://kubernetes.default.svcx"),
		"for a storage":        forAudience(account, a, "https://vault.example.com/x.blob.core.windows.net/a"),
		"for many":             forAudience(account, a, "a", "b", "c", "d", "e"),
		"of the operator":      bound(contract.OperatorServiceAccount, "Node", a, 3600),
		"of another namespace": token(contract.MachineConfigNamespace, contract.BootstrapServiceAccount),
	}, refused)
	tries(t, daemon, map[string]attempt{
		"for the API server":              forAudience(account, a, "https://kubernetes.default.svc"),
		"for that of kubeadm":             forAudience(account, a, "https://kubernetes.default.svc.cluster.local"),
		"for that of a workload identity": forAudience(account, a, "https://wmcolab.blob.core.windows.net/lab-x7k2p"),
	}, func(err error) bool { return err == nil })
	allowAudience(t, admin, "https://issuer.example.com/lab")
	until(t, func(ctx context.Context) bool {
		return forAudience(account, a, "https://issuer.example.com/lab")(ctx, daemon) == nil
	})
	token, err := requestToken(t.Context(), daemon, account, "Node", a, 3600)
	if err != nil {
		t.Fatal(err)
	}
	manager := withToken(t, lab, token)
	t.Run("the token gives rights for its Node only", func(t *testing.T) { keptToItsNode(t, admin, manager, a, b) })
	t.Run("a token without a Node can't write", func(t *testing.T) {
		free, err := requestToken(t.Context(), admin, account, "", "", 3600)
		if err != nil {
			t.Fatal(err)
		}
		tries(t, withToken(t, lab, free), map[string]attempt{"a label": patch(a, zone)}, refusedByPolicy)
	})
	t.Run("a token becomes invalid when its Node is deleted", func(t *testing.T) {
		if err := admin.CoreV1().Nodes().Delete(t.Context(), a, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, func(ctx context.Context) bool {
			_, err := manager.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
			return apierrors.IsUnauthorized(err)
		})
	})
}

// allowAudience grants daemons the right that is named in the policy's message.
func allowAudience(t *testing.T, admin kubernetes.Interface, audience string) {
	t.Helper()
	meta := metav1.ObjectMeta{Name: "windows-token-audience", Namespace: contract.OperatorNamespace}
	_, err := admin.RbacV1().Roles(meta.Namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: meta,
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{audience},
			Verbs: []string{"request-serviceaccounts-token-audience"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().RoleBindings(meta.Namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: meta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: contract.DaemonGroup}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func withToken(t *testing.T, lab *cluster.Cluster, token string) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(lab.Admin())
	config.BearerToken = token
	return connect(t, config)
}

// zone is a label that Azure's node manager writes.
const zone = `{"metadata":{"labels":{"topology.kubernetes.io/zone":"eastus-1"}}}`

// keptToItsNode makes the requests of the real node manager on Node a, and requests that it must not be able to make.
func keptToItsNode(t *testing.T, admin, manager kubernetes.Interface, a, b string) {
	t.Helper()
	taint := func(node string) {
		_, err := admin.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType,
			[]byte(`{"spec":{"taints":[{"key":"os","value":"Windows","effect":"NoSchedule"},`+
				`{"key":"`+uninitialized+`","value":"true","effect":"NoSchedule"}]}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	taint(a)
	taint(b)
	until(t, func(ctx context.Context) bool { return refusedByPolicy(patch(b, zone)(ctx, manager)) })
	deletes := func(ctx context.Context, c kubernetes.Interface) error {
		return c.CoreV1().Nodes().Delete(ctx, a, metav1.DeleteOptions{})
	}
	refused := map[string]attempt{
		"initialises another Node":     initialise(b, nil),
		"addresses of another Node":    patchStatus(b),
		"keeps no taint":               initialise(a, func(n *corev1.Node) { n.Spec.Taints = nil }),
		"adds a taint":                 patch(a, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`),
		"cordons it":                   patch(a, `{"spec":{"unschedulable":true}}`),
		"another cloud's provider id":  patch(a, `{"spec":{"providerID":"aws:///i-1"}}`),
		"annotates it":                 annotate(a, contract.RevisionAnnotation),
		"labels it as control plane":   patch(a, `{"metadata":{"labels":{"node-role.kubernetes.io/master":""}}}`),
		"labels it as Linux":           patch(a, `{"metadata":{"labels":{"kubernetes.io/os":"linux"}}}`),
		"labels it for AKS":            patch(a, `{"metadata":{"labels":{"kubernetes.azure.com/cluster":"x"}}}`),
		"sets a finalizer":             patch(a, `{"metadata":{"finalizers":["example.com/stay"]}}`),
		"labels it through the status": patch(a, zone, "status"),
		"says that it is ready": patch(a,
			`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`, "status"),
		"gives it memory":     patch(a, `{"status":{"capacity":{"memory":"1Ti"}}}`, "status"),
		"gives it an image":   patch(a, `{"status":{"images":[{"names":["x"],"sizeBytes":1}]}}`, "status"),
		"gives it another OS": patch(a, `{"status":{"nodeInfo":{"operatingSystem":"linux"}}}`, "status"),
		"deletes it":          deletes,
		"makes another":       makeNode,
		"reads secrets":       readSecret(contract.OperatorNamespace, contract.PrivateKeySecret),
	}
	tries(t, manager, refused, apierrors.IsForbidden)
	fine := func(err error) bool { return err == nil }
	tries(t, manager, map[string]attempt{"initialises its Node": initialise(a, nil)}, fine)
	tries(t, manager, map[string]attempt{
		"addresses":                   patchStatus(a),
		"an earlier label":            patch(a, `{"metadata":{"labels":{"failure-domain.beta.kubernetes.io/zone":"0"}}}`),
		"the same provider id":        patch(a, `{"spec":{"providerID":"azure:///a"}}`),
		"nothing, in the whole Node":  initialise(a, nil),
		"nothing, in the Node status": patch(a, `{}`, "status"),
	}, fine)
	tries(t, manager, map[string]attempt{
		"another provider id": patch(a, `{"spec":{"providerID":"azure:///b"}}`),
		"no provider id":      patch(a, `{"spec":{"providerID":null}}`),
	}, func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) })
	node, err := admin.CoreV1().Nodes().Get(t.Context(), a, metav1.GetOptions{})
	if err != nil || node.Spec.ProviderID != "azure:///a" || len(node.Status.Addresses) != 1 || node.Spec.Unschedulable ||
		node.Annotations["example.com/kept"] != "yes" || node.Labels[corev1.LabelTopologyZone] != "eastus-1" {
		t.Errorf("the node is %+v, %v", node, err)
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == uninitialized || taint.Key == "a" {
			t.Errorf("the node has the taints %v", node.Spec.Taints)
		}
	}
}

// initialise reads a Node, and updates it as the node manager does.
func initialise(name string, further func(*corev1.Node)) attempt {
	return func(ctx context.Context, c kubernetes.Interface) error {
		node, err := c.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		node.Spec.ProviderID = "azure:///a"
		node.Labels[corev1.LabelInstanceTypeStable] = "Standard_D4s_v3"
		node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion] = "eastus-1", "eastus"
		node.Labels["topology.kubernetes.azure.com/interconnect-group"] = "group-1"
		var left []corev1.Taint
		for _, taint := range node.Spec.Taints {
			if taint.Key != uninitialized {
				left = append(left, taint)
			}
		}
		node.Spec.Taints = left
		if further != nil {
			further(node)
		}
		_, err = c.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{})
		return err
	}
}
