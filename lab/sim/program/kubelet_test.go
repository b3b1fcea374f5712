package program_test

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

func TestKubeletRegistersItsNode(t *testing.T) {
	t.Parallel()
	b, admin := join(t, "registers", program.Options{})
	node, err := admin.CoreV1().Nodes().Get(t.Context(), b.node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"kubernetes.io/os": "windows", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": b.node,
		"node.kubernetes.io/windows-build": "10.0.20348", "node.openshift.io/os_id": "Windows",
	} {
		if node.Labels[key] != want {
			t.Errorf("label %s is %q, want %q", key, node.Labels[key], want)
		}
	}
	if first := node.Spec.Taints[0]; first.Key != "os" || first.Value != "Windows" ||
		first.Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("the first taint is %v", first)
	}
	info := node.Status.NodeInfo
	if info.KubeletVersion != "v1.36.3" || info.ContainerRuntimeVersion != "containerd://1.36.3" ||
		info.OperatingSystem != "windows" ||
		info.KernelVersion != "10.0.20348.2700" || !strings.Contains(info.OSImage, "Windows Server") ||
		info.BootID == "" {
		t.Errorf("node info is %+v", info)
	}
	wantAddresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
		{Type: corev1.NodeHostName, Address: b.node}}
	if diff := cmp.Diff(wantAddresses, node.Status.Addresses); diff != "" {
		t.Errorf("addresses differ: %s", diff)
	}
	if cpu := node.Status.Allocatable.Cpu().String(); cpu != "3500m" {
		t.Errorf("allocatable processors are %s", cpu)
	}
	if pods := node.Status.Capacity.Pods().Value(); pods != 250 {
		t.Errorf("capacity is %d pods", pods)
	}
	eventually(t, "a lease", func() error {
		lease, err := admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), b.node,
			metav1.GetOptions{})
		if err == nil && (*lease.Spec.LeaseDurationSeconds != 40 || *lease.Spec.HolderIdentity != b.node ||
			lease.OwnerReferences[0].UID != node.UID) {
			err = fmt.Errorf("the lease is %+v", lease)
		}
		return err
	})
	listening, err := b.Host().Network.Listening(t.Context())
	if err != nil || listening[10250] != "kubelet.exe" {
		t.Errorf("the program on port 10250 is %q, %v", listening[10250], err)
	}
}

func TestNodeIsReadyOnceRuntimeAndNetworkAreThere(t *testing.T) {
	t.Parallel()
	b, admin := join(t, "ready", program.Options{})
	b.expectReady(t, admin, corev1.ConditionFalse)
	b.makeReady(t, admin)
	b.stop(t, contract.ServiceContainerd)
	b.expectReady(t, admin, corev1.ConditionFalse)
	b.start(t, contract.ServiceContainerd, containerdCommand)
	b.expectReady(t, admin, corev1.ConditionTrue)
	if err := b.Host().Network.RemoveHNSNetwork(t.Context(), contract.HybridOverlayNetwork); err != nil {
		t.Fatal(err)
	}
	b.expectReady(t, admin, corev1.ConditionFalse)
}

func TestCertificateRequestsAreThoseOfKubelet(t *testing.T) {
	t.Parallel()
	b, admin := join(t, "requests", program.Options{})
	b.awaitServing(t)
	requests := requestsOf(t, admin, b.node)
	if len(requests) != 2 {
		t.Fatalf("kubelet sent %d requests, want 2", len(requests))
	}
	slices.SortFunc(requests, func(a, b certificatesv1.CertificateSigningRequest) int {
		return strings.Compare(a.Spec.SignerName, b.Spec.SignerName)
	})
	client, server := requests[0].Spec, requests[1].Spec
	if client.SignerName != "kubernetes.io/kube-apiserver-client-kubelet" ||
		client.Username != "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper" ||
		!slices.Equal(client.Usages, []certificatesv1.KeyUsage{"digital signature", "client auth"}) {
		t.Errorf("the first request has the signer %s, the user %s and the usages %v", client.SignerName,
			client.Username, client.Usages)
	}
	if server.SignerName != "kubernetes.io/kubelet-serving" || server.Username != "system:node:"+b.node ||
		!slices.Equal(server.Usages, []certificatesv1.KeyUsage{"digital signature", "server auth"}) {
		t.Errorf("the second request has the signer %s, the user %s and the usages %v", server.SignerName,
			server.Username, server.Usages)
	}
	first, second := parseRequest(t, client.Request), parseRequest(t, server.Request)
	for _, r := range []*x509.CertificateRequest{first, second} {
		if r.Subject.String() != "CN=system:node:"+b.node+",O=system:nodes" {
			t.Errorf("the subject is %s", r.Subject)
		}
		if _, ok := r.PublicKey.(*ecdsa.PublicKey); !ok {
			t.Errorf("the key is a %T", r.PublicKey)
		}
	}
	if len(first.DNSNames)+len(first.IPAddresses) != 0 {
		t.Errorf("the client's request has the names %v and the addresses %v", first.DNSNames, first.IPAddresses)
	}
	if !slices.Equal(second.DNSNames, []string{b.node}) || len(second.IPAddresses) != 1 ||
		second.IPAddresses[0].String() != "127.0.0.1" {
		t.Errorf("the server's request has the names %v and the addresses %v", second.DNSNames, second.IPAddresses)
	}
	for _, path := range []string{servingPair, `C:\var\lib\kubelet\pki\kubelet-client-current.pem`, `C:\k\kubeconfig`} {
		if info, err := b.Host().Files.Stat(path); err != nil || info.Access != winos.AccessAdministrators {
			t.Errorf("file %s is %+v, %v", path, info, err)
		}
	}
}

func parseRequest(t *testing.T, content []byte) *x509.CertificateRequest {
	t.Helper()
	block, _ := pem.Decode(content)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// kubelet's kubeconfig is deleted, but its certificate still exists. When kubelet starts again, it must use the
// certificate instead of the bootstrap credential.
func TestKubeletStartsAgainWithTheCertificateThatItHas(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]string{"nobootstrap": contract.PathBootstrapKubeconfig,
		"nokubeconfig": contract.PathKubeconfig} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, admin := join(t, name, program.Options{})
			b.makeReady(t, admin)
			b.awaitServing(t)
			b.stop(t, contract.ServiceKubelet)
			if err := b.Host().Files.Remove(lost); err != nil {
				t.Fatal(err)
			}
			before := len(requestsOf(t, admin, b.node))
			relabel(t, admin, b.node)
			b.start(t, contract.ServiceKubelet, kubeletCommand)
			eventually(t, "the default label", func() error {
				node, err := admin.CoreV1().Nodes().Get(t.Context(), b.node, metav1.GetOptions{})
				if err == nil && node.Labels["kubernetes.io/os"] != "windows" {
					err = errWait
				}
				return err
			})
			b.expectReady(t, admin, corev1.ConditionTrue)
			if after := len(requestsOf(t, admin, b.node)); after != before {
				t.Errorf("kubelet had sent %d requests, and %d after its restart", before, after)
			}
		})
	}
}

// relabel changes a label of the Node that kubelet must restore.
func relabel(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	_, err := admin.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"kubernetes.io/os":"linux"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestKubeletComesBackAfterAReboot(t *testing.T) {
	t.Parallel()
	b, admin := join(t, "reboot", program.Options{})
	b.makeReady(t, admin)
	first, err := admin.CoreV1().Nodes().Get(t.Context(), b.node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b.PowerCut()
	b.PowerOn()
	eventually(t, "another boot id", func() error {
		node, err := admin.CoreV1().Nodes().Get(t.Context(), b.node, metav1.GetOptions{})
		if err == nil && node.Status.NodeInfo.BootID == first.Status.NodeInfo.BootID {
			err = errWait
		}
		return err
	})
	b.expectReady(t, admin, corev1.ConditionTrue)
}

func TestKubeletWithoutAnyCredentialEnds(t *testing.T) {
	t.Parallel()
	b := newBox(t, "nothing", program.Options{})
	output, code := b.exec(
		t, `C:\k\kubelet.exe --config=C:\k\kubelet.conf --bootstrap-kubeconfig=C:\k\bootstrap-kubeconfig --kubeconfig=C:\k\kubeconfig`)
	if code != 1 || !strings.Contains(output, "bootstrapping") {
		t.Errorf("kubelet ended with exit code %d and the output %s", code, output)
	}
}

func TestADeniedRequestIsFollowedByOneForAnotherKey(t *testing.T) {
	t.Parallel()
	b, admin := bootstrapping(t, "denied")
	b.start(t, contract.ServiceKubelet, kubeletCommand)
	eventually(t, "a request", func() error {
		for _, r := range requestsOf(t, admin, b.node) {
			return deny(t, admin, r)
		}
		return errWait
	})
	b.asksForTwoKeys(t, admin)
}

// A kubelet that rotates its certificate keeps the key of its request only in memory. So when it starts again, it must
// send a request with a different key.
func TestAKubeletThatIsStoppedAsksWithAnotherKey(t *testing.T) {
	t.Parallel()
	b, admin := bootstrapping(t, "pending")
	b.start(t, contract.ServiceKubelet, kubeletCommand)
	eventually(t, "a request", func() error {
		if len(requestsOf(t, admin, b.node)) == 0 {
			return errWait
		}
		return nil
	})
	b.stop(t, contract.ServiceKubelet)
	b.start(t, contract.ServiceKubelet, kubeletCommand)
	b.asksForTwoKeys(t, admin)
}

// bootstrapping returns a machine whose kubelet has a bootstrap credential. Nothing approves kubelet's certificate
// requests.
func bootstrapping(t *testing.T, name string) (box, kubernetes.Interface) {
	t.Helper()
	c, admin := startLab(t)
	_, kubeconfig, err := c.ServiceAccountConfig(t.Context(), contract.MachineConfigNamespace,
		contract.BootstrapServiceAccount, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t, unique(name), program.Options{})
	b.write(t, contract.PathBootstrapKubeconfig, string(kubeconfig))
	return b, admin
}

// asksForTwoKeys waits until there are certificate requests with two different keys. It also checks that the API server
// has generated the names of these requests.
func (b box) asksForTwoKeys(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	eventually(t, "a second key", func() error {
		keys := map[string]bool{}
		for _, r := range requestsOf(t, admin, b.node) {
			if !strings.HasPrefix(r.Name, "csr-") {
				t.Fatalf("a request has the name %s", r.Name)
			}
			keys[string(parseRequest(t, r.Spec.Request).RawSubjectPublicKeyInfo)] = true
		}
		if len(keys) < 2 {
			return errWait
		}
		return nil
	})
	b.stop(t, contract.ServiceKubelet)
}

func deny(t *testing.T, admin kubernetes.Interface, r certificatesv1.CertificateSigningRequest) error {
	t.Helper()
	r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue, Reason: "Test",
		Message: "denied by the test",
	})
	_, err := admin.CertificatesV1().CertificateSigningRequests().UpdateApproval(t.Context(), r.Name, &r,
		metav1.UpdateOptions{})
	return err
}

func TestPodsRunAndEndWithTheirGracePeriod(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		grace    int64
		stop     time.Duration
		shortest time.Duration
		longest  time.Duration
	}{
		"pods-whole-grace": {grace: 2, shortest: 1900 * time.Millisecond, longest: time.Minute},
		"pods-fast-stop": {grace: 600, stop: 500 * time.Millisecond, shortest: 400 * time.Millisecond,
			longest: time.Minute},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, admin := join(t, name, program.Options{PodStop: test.stop})
			pods := admin.CoreV1().Pods(metav1.NamespaceDefault)
			allowPods(t, admin)
			_, err := pods.Create(t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: b.node},
				Spec: corev1.PodSpec{
					NodeName: b.node, TerminationGracePeriodSeconds: &test.grace,
					Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			b.makeReady(t, admin)
			eventually(t, "a running pod", func() error {
				pod, err := pods.Get(t.Context(), b.node, metav1.GetOptions{})
				if err == nil && (pod.Status.Phase != corev1.PodRunning || !pod.Status.ContainerStatuses[0].Ready ||
					pod.Status.PodIP != "10.132.0.10") {
					err = fmt.Errorf("the pod is %+v", pod.Status)
				}
				return err
			})
			begin := time.Now()
			if err := pods.Delete(t.Context(), b.node, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the pod's end", func() error {
				if _, err := pods.Get(t.Context(), b.node, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return errWait
				}
				return nil
			})
			if took := time.Since(begin); took < test.shortest || took > test.longest {
				t.Errorf("the pod's end took %v", took)
			}
		})
	}
}

// allowPods creates the service account that admission adds to pods. On real clusters, a controller creates it.
func allowPods(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	_, err := admin.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func TestAnIdleKubeletWritesItsLeaseOnly(t *testing.T) {
	t.Parallel()
	c, _ := startLab(t)
	b, admin := join(t, "idle", program.Options{LeaseInterval: 200 * time.Millisecond})
	b.makeReady(t, admin)
	b.awaitServing(t)
	count := func() map[string]int {
		verbs := map[string]int{}
		for r, err := range cluster.Requests(c.AuditLog) {
			if err != nil {
				t.Fatal(err)
			}
			if r.User == "system:node:"+b.node {
				verbs[r.Verb+" "+r.Resource+"/"+r.Subresource]++
			}
		}
		return verbs
	}
	renewals := func(n int) {
		t.Helper()
		before := count()["update leases/"]
		eventually(t, fmt.Sprint(n, " renewals"), func() error {
			if count()["update leases/"] < before+n {
				return errWait
			}
			return nil
		})
	}
	others := func() map[string]int {
		verbs := count()
		delete(verbs, "update leases/")
		return verbs
	}
	// kubelet writes this log entry shortly after the change that makes the node ready.
	before := others()
	eventually(t, "idleness", func() error {
		last := before
		renewals(3)
		if before = others(); !maps.Equal(before, last) {
			return errWait
		}
		return nil
	})
	renewals(10)
	for what, n := range others() {
		if n != before[what] {
			t.Errorf("an idle kubelet made %d requests: %s", n-before[what], what)
		}
	}
}
