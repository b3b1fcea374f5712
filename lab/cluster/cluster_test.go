package cluster

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// look has the checks of TestCluster as methods.
type look struct{ c *Cluster }

// TestCluster starts one cluster and checks all its features.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{Audit: true, NodeMonitorGrace: 3 * time.Second})
	look := look{c}
	t.Run("looked at", func(t *testing.T) { // it returns when all its parallel subtests have ended
		t.Run("kubectl and the server report the pinned version", look.version)
		t.Run("the administrator's kubeconfig works", look.kubeconfig)
		t.Run("a service account has a token and no rights", look.serviceAccount)
		t.Run("a certificate request is signed when approved and only so", look.signing)
		t.Run("a node may touch its own objects only", look.nodeRestriction)
		t.Run("a deployment and a daemon set get their pods", look.workloads)
		t.Run("an unresponsive node is marked and a deleted owner's objects go", look.nodeLifecycle)
		t.Run("OpenShift's definitions are served, and installed twice", look.openShift)
		t.Run("the audit log tells who asked for what, and by which right", look.audit)
	})
	select {
	case err := <-c.Died():
		t.Error(err)
	default:
	}
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// makeNamespace creates a namespace and waits for the objects that controllers create in it.
func makeNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	_, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

func (l look) version(t *testing.T) {
	t.Parallel()
	pins, err := exec.CommandContext(t.Context(), "go", "-C", "../controlplane", "list", "-m", "-f", "{{.Version}}",
		kubernetesModule).Output()
	if err != nil {
		t.Fatal(err)
	}
	version := strings.TrimSpace(string(pins))
	output, err := exec.CommandContext(t.Context(), l.c.Binaries.Kubectl, "--kubeconfig", l.c.Kubeconfig,
		"version").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, want := range []string{"Client Version: " + version, "Server Version: " + version} {
		if !strings.Contains(string(output), want) {
			t.Errorf("the output lacks %q:\n%s", want, output)
		}
	}
}

func (l look) kubeconfig(t *testing.T) {
	t.Parallel()
	config, err := clientcmd.BuildConfigFromFlags("", l.c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != l.c.URL {
		t.Errorf("the kubeconfig has the server %s, want %s", config.Host, l.c.URL)
	}
	if _, err := clientFor(t, config).CoreV1().Secrets("kube-system").List(t.Context(),
		metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(l.c.Kubeconfig)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the kubeconfig has the mode %v, %v", info.Mode(), err)
	}
}

func (l look) serviceAccount(t *testing.T) {
	t.Parallel()
	makeNamespace(t, clientFor(t, l.c.Admin()), "accounts")
	config, content, err := l.c.ServiceAccountConfig(t.Context(), "accounts", "default", 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	fromFile, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		t.Fatal(err)
	}
	for name, config := range map[string]*rest.Config{"config": config, "kubeconfig": fromFile} {
		_, err = clientFor(t, config).CoreV1().ConfigMaps("accounts").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:accounts:default") {
			t.Errorf("%s: %v; want the user authenticated and forbidden", name, err)
		}
	}
	if _, _, err := l.c.ServiceAccountConfig(t.Context(), "accounts", "nobody",
		10*time.Minute); !apierrors.IsNotFound(err) {
		t.Errorf("a token for a missing service account: %v", err)
	}
}

// requestCertificate submits the client certificate request of a kubelet and returns its name.
func requestCertificate(t *testing.T, client kubernetes.Interface,
	node string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := client.CertificatesV1().CertificateSigningRequests().Create(t.Context(),
		&certificatesv1.CertificateSigningRequest{
			ObjectMeta: metav1.ObjectMeta{Name: node},
			Spec: certificatesv1.CertificateSigningRequestSpec{
				Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
				SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature,
					certificatesv1.UsageClientAuth},
			},
		}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

func (l look) signing(t *testing.T) {
	t.Parallel()
	client := clientFor(t, l.c.Admin())
	requests := client.CertificatesV1().CertificateSigningRequests()
	waiting := requestCertificate(t, client, "csr-waiting")
	approved := requestCertificate(t, client, "csr-approved")
	approved.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{
		Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
	}}
	if _, err := requests.UpdateApproval(t.Context(), approved.Name, approved, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	var issued []byte
	eventually(t, func(ctx context.Context) error {
		csr, err := requests.Get(ctx, approved.Name, metav1.GetOptions{})
		if err == nil && len(csr.Status.Certificate) == 0 {
			err = errors.New("no certificate yet")
		}
		if err == nil {
			issued = csr.Status.Certificate
		}
		return err
	})
	block, _ := pem.Decode(issued)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(l.c.CAPEM)
	if _, err := certificate.Verify(x509.VerifyOptions{Roots: roots,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		t.Error(err)
	}
	// The signer has also processed this request by now, because it was created before the approved request.
	csr, err := requests.Get(t.Context(), waiting.Name, metav1.GetOptions{})
	if err != nil || len(csr.Status.Certificate) != 0 || len(csr.Status.Conditions) != 0 {
		t.Errorf("a request that was not approved has the status %+v, %v", csr.Status, err)
	}
}

func (l look) nodeRestriction(t *testing.T) {
	t.Parallel()
	admin := clientFor(t, l.c.Admin())
	for _, name := range []string{"own", "other"} {
		config, err := l.c.UserConfig("system:node:"+name, "system:nodes")
		if err != nil {
			t.Fatal(err)
		}
		_, err = clientFor(t, config).CoreV1().Nodes().Create(t.Context(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "private"}}
	if _, err := admin.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config, err := l.c.UserConfig("system:node:own", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	node := clientFor(t, config)
	label := func(name, key string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"x"}}}`, key)
		_, err := node.CoreV1().Nodes().Patch(t.Context(), name, "application/merge-patch+json", patch,
			metav1.PatchOptions{})
		return err
	}
	if err := label("own", "example.com/mark"); err != nil {
		t.Errorf("a kubelet can't change its own node: %v", err)
	}
	if err := label("own", "node-restriction.kubernetes.io/mark"); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet setting a restricted label on its own node: %v", err)
	}
	if err := label("other", "example.com/mark"); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet changing another node: %v", err)
	}
	if _, err := node.CoreV1().Secrets("default").Get(t.Context(), "private",
		metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a kubelet reading a secret that none of its pods uses: %v", err)
	}
}

func (l look) workloads(t *testing.T) {
	t.Parallel()
	client := clientFor(t, l.c.Admin())
	makeNamespace(t, client, "workloads")
	makeNode(t, client, "runner")
	labels := map[string]string{"app": "x"}
	meta := metav1.ObjectMeta{Name: "x", Labels: labels}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "x", Image: "example.com/x"}}},
	}
	_, err := client.AppsV1().Deployments("workloads").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.AppsV1().DaemonSets("workloads").Create(t.Context(), &appsv1.DaemonSet{
		ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods("workloads").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		owners := map[string]bool{}
		for _, pod := range pods.Items {
			owners[metav1.GetControllerOf(&pod).Kind] = true
		}
		if !owners["ReplicaSet"] || !owners["DaemonSet"] {
			return fmt.Errorf("pods of %v", owners)
		}
		return nil
	})
}

// makeNode creates a node that reports Ready once and never again.
func makeNode(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	now := metav1.Now()
	_, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func (l look) nodeLifecycle(t *testing.T) {
	t.Parallel()
	client := clientFor(t, l.c.Admin())
	makeNode(t, client, "silent")
	owner, err := client.CoreV1().Nodes().Get(t.Context(), "silent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: owner.Name,
			UID: owner.UID}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		node, err := client.CoreV1().Nodes().Get(ctx, "silent", metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionUnknown {
				return nil
			}
		}
		return fmt.Errorf("conditions %v", node.Status.Conditions)
	})
	if err := client.CoreV1().Nodes().Delete(t.Context(), "silent", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		_, err := client.CoreV1().ConfigMaps("default").Get(ctx, "owned", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the pod still exists: %w", err)
	})
}

func (l look) openShift(t *testing.T) {
	t.Parallel()
	dirs, err := OpenShiftCRDDirs(t.Context(), "config/v1", "machine/v1beta1", "operator/v1", "machineconfiguration/v1")
	if err != nil {
		t.Fatal(err)
	}
	options := CRDOptions{Paths: dirs, Filter: OpenShiftDefault, Names: []string{
		"clusteroperators.config.openshift.io",
		"controllerconfigs.machineconfiguration.openshift.io",
		"imagedigestmirrorsets.config.openshift.io",
		"imagetagmirrorsets.config.openshift.io",
		"infrastructures.config.openshift.io",
		"machineconfigs.machineconfiguration.openshift.io",
		"machines.machine.openshift.io",
		"machinesets.machine.openshift.io",
		"networks.config.openshift.io",
		"networks.operator.openshift.io",
		"proxies.config.openshift.io",
	}}
	for range 2 {
		began := time.Now()
		names, err := InstallCRDs(t.Context(), l.c.Admin(), options)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(names, options.Names) {
			t.Errorf("the installed CRDs are %v", names)
		}
		t.Logf("installed in %s", time.Since(began).Round(time.Millisecond))
	}
	resources, err := clientFor(
		t, l.c.Admin()).Discovery().ServerResourcesForGroupVersion("machine.openshift.io/v1beta1")
	if err != nil || len(resources.APIResources) < 2 {
		t.Errorf("the served resources are %v, %v", resources, err)
	}
}

func (l look) audit(t *testing.T) {
	t.Parallel()
	admin := clientFor(t, l.c.Admin())
	makeNamespace(t, admin, "audited")
	config, err := l.c.UserConfig("auditor")
	if err != nil {
		t.Fatal(err)
	}
	client := clientFor(t, config)
	for range 3 {
		if _, err := client.CoreV1().Secrets("audited").Get(t.Context(), "x",
			metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("a request of a user without rights: %v", err)
		}
	}
	if _, err := client.Discovery().ServerGroups(); err != nil {
		t.Fatal(err)
	}
	counts, err := CountRequests(l.c.AuditLog, func(r Request) bool {
		return r.Resource == "secrets" && r.Namespace == "audited" && r.Code == 403 && !r.Allowed
	})
	if want := (UserVerb{User: "auditor", Verb: "get"}); err != nil || len(counts) != 1 || counts[want] != 3 {
		t.Errorf("the counted requests are %v, %v; want 3 of %v only", counts, err, want)
	}
	for request, err := range Requests(l.c.AuditLog) {
		if err != nil {
			t.Fatal(err)
		}
		if request.User == "auditor" && request.Allowed &&
			strings.Contains(request.Reason, `ClusterRole "system:discovery"`) {
			return
		}
	}
	t.Error("no request names the role that allowed it")
}
