package program_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/leak"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

// lab is the control plane that all tests of this package use.
var lab struct {
	once    sync.Once
	cluster *cluster.Cluster
	admin   kubernetes.Interface
	err     error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if lab.cluster != nil {
		if err := lab.cluster.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if err := leak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// startLab starts the control plane if it isn't running yet. It returns the control plane and a client with an
// administrator's rights.
func startLab(t *testing.T) (*cluster.Cluster, kubernetes.Interface) {
	t.Helper()
	plane.SkipIfShort(t)
	lab.once.Do(func() {
		lab.cluster, lab.err = cluster.Start(context.Background(), cluster.Options{Progress: os.Stderr, Audit: true})
		if lab.err == nil {
			lab.admin, lab.err = kubernetes.NewForConfig(lab.cluster.Admin())
		}
		if lab.err == nil {
			lab.err = prepareLab(lab.admin)
		}
	})
	if lab.err != nil {
		t.Fatal(lab.err)
	}
	return lab.cluster, lab.admin
}

// prepareLab creates the identity with which kubelets bootstrap.
func prepareLab(admin kubernetes.Interface) error {
	ctx := context.Background()
	_, err := admin.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigNamespace},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = admin.CoreV1().ServiceAccounts(contract.MachineConfigNamespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: contract.BootstrapServiceAccount},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-kubelets"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: contract.MachineConfigNamespace,
			Name: contract.BootstrapServiceAccount,
		}},
	}, metav1.CreateOptions{})
	return err
}

const kubeletConfig = `{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
	"containerRuntimeEndpoint": "npipe://./pipe/containerd-containerd", "rotateCertificates": true, "serverTLSBootstrap": true, "maxPods": 250,
	"authentication": {"x509": {"clientCAFile": "C:\\k\\kubelet-ca.crt"}},
	"systemReserved": {"cpu": "500m", "memory": "2Gi"},
	"registerWithTaints": [{"key": "os", "value": "Windows", "effect": "NoSchedule"}]}`

const containerdConfig = "version = 3\n"

const cniConfig = `{"cniVersion": "0.2.0", "name": "OVNKubernetesHybridOverlayNetwork", "type": "win-overlay"}`

// box is a machine with the files that the daemon writes before it starts services.
type box struct {
	*sim.Machine
	node string
}

func newBox(t *testing.T, name string, options program.Options) box {
	t.Helper()
	m, err := sim.New(sim.Options{
		Hostname: strings.ToUpper(name), Address: netip.MustParseAddr("127.0.0.1"), Programs: program.Standins(options),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	b := box{Machine: m, node: name}
	for _, exe := range []string{
		contract.PathKubelet, contract.PathKubeProxy, contract.PathHybridOverlay, contract.PathFlannel,
		contract.PathServiceWrapper, contract.PathCSIProxy,
		contract.PathWindowsExporter,
		contract.PathAzureNodeManager, contract.PathContainerd, contract.PathKubeLogRunner,
	} {
		b.write(t, exe, "MZ\n"+exe+"\n1.36.3\n")
	}
	b.write(t, contract.PathKubeletConfig, kubeletConfig)
	b.write(t, contract.PathContainerdConfig, containerdConfig)
	ca, _ := keyPair(t)
	b.write(t, contract.PathKubeletCA, ca)
	for _, dir := range []string{"kubelet", "kube-proxy", "containerd", "hybrid-overlay", "windows_exporter",
		"csi-proxy", "flanneld", "cloud-node-manager"} {
		if err := m.Host().Files.MkdirAll(contract.DirLog+`\`+dir, winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

func (b box) write(t *testing.T, path, content string) {
	t.Helper()
	files := b.Host().Files
	if err := files.MkdirAll(path[:strings.LastIndexByte(path, '\\')], winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	if err := winos.WriteFile(files, path, strings.NewReader(content), winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
}

func (b box) read(t *testing.T, path string) string {
	t.Helper()
	content, err := winos.ReadFile(b.Host().Files, path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// exec runs a command line and waits until it has ended.
func (b box) exec(t *testing.T, line string) (output string, code int) {
	t.Helper()
	var out bytes.Buffer
	code = b.Exec(t.Context(), sim.ExecRequest{CommandLine: line, Stdout: &out, Stderr: &out})
	return out.String(), code
}

// start creates a service and starts it.
func (b box) start(t *testing.T, name, command string) {
	t.Helper()
	services := b.Host().Services
	if err := services.Apply(t.Context(), winos.ServiceConfig{Name: name, Command: command}); err != nil {
		t.Fatal(err)
	}
	if err := services.Start(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

func (b box) stop(t *testing.T, name string) {
	t.Helper()
	if err := b.Host().Services.Stop(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

const (
	kubeletCommand = `C:\k\kube-log-runner.exe -log-file=C:\var\log\kubelet\kubelet.log C:\k\kubelet.exe --config=C:\k\kubelet.conf ` +
		`--bootstrap-kubeconfig=C:\k\bootstrap-kubeconfig --kubeconfig=C:\k\kubeconfig --cert-dir=c:\var\lib\kubelet\pki\ --windows-service ` +
		`--node-labels=node.openshift.io/os_id=Windows --windows-priorityclass=ABOVE_NORMAL_PRIORITY_CLASS --v=2`
	containerdCommand = `C:\k\containerd\containerd.exe --config=C:\k\containerd\containerd_conf.toml ` +
		`--log-file=C:\var\log\containerd\containerd.log --run-service --log-level=info`
)

// unique returns a node name that no earlier test in this process has used.
func unique(name string) string { return name + "-" + strings.ToLower(rand.Text()[:6]) }

// join returns a machine whose kubelet has registered its Node. It approves kubelet's certificate requests until the
// test ends.
func join(t *testing.T, name string, options program.Options) (box, kubernetes.Interface) {
	t.Helper()
	c, admin := startLab(t)
	return joinOn(t, c, admin, unique(name), options), admin
}

func joinOn(t *testing.T, c *cluster.Cluster, admin kubernetes.Interface, name string, options program.Options) box {
	t.Helper()
	_, kubeconfig, err := c.ServiceAccountConfig(t.Context(), contract.MachineConfigNamespace,
		contract.BootstrapServiceAccount, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	b := newBox(t, name, options)
	b.write(t, contract.PathBootstrapKubeconfig, string(kubeconfig))
	approve(t, admin, name)
	b.start(t, contract.ServiceContainerd, containerdCommand)
	b.start(t, contract.ServiceKubelet, kubeletCommand)
	eventually(t, "the node "+name, func() error {
		_, err := admin.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	return b
}

// makeReady sets up the network of the node, as the hybrid overlay and the daemon do.
func (b box) makeReady(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	_, err := b.CreateHNSNetwork(winos.HNSNetwork{Name: contract.HybridOverlayNetwork,
		Subnet: netip.MustParsePrefix("10.132.0.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, contract.PathCNIConfig, cniConfig)
	b.expectReady(t, admin, corev1.ConditionTrue)
}

func (b box) expectReady(t *testing.T, admin kubernetes.Interface, status corev1.ConditionStatus) {
	t.Helper()
	eventually(t, "readiness of "+b.node, func() error {
		node, err := admin.CoreV1().Nodes().Get(t.Context(), b.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == status {
				return nil
			}
		}
		return fmt.Errorf("conditions are %v", node.Status.Conditions)
	})
}

const servingPair = `C:\var\lib\kubelet\pki\kubelet-server-current.pem`

// awaitServing waits until kubelet has its serving certificate. After that, kubelet sends no more certificate requests.
func (b box) awaitServing(t *testing.T) {
	t.Helper()
	eventually(t, "the serving certificate of "+b.node, func() error {
		_, err := b.Host().Files.Stat(servingPair)
		return err
	})
}

// approve approves the certificate requests of a node until the test ends.
func approve(t *testing.T, admin kubernetes.Interface, node string) {
	t.Helper()
	requests := admin.CertificatesV1().CertificateSigningRequests()
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-t.Context().Done():
				return
			}
			for _, r := range requestsOf(t, admin, node) {
				if len(r.Status.Conditions) > 0 {
					continue
				}
				r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
					Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Test",
				})
				_, err := requests.UpdateApproval(t.Context(), r.Name, &r, metav1.UpdateOptions{})
				if err != nil && !apierrors.IsConflict(err) && t.Context().Err() == nil {
					t.Error(err)
				}
			}
		}
	}()
}

// requestsOf returns the certificate requests for the node with this name.
func requestsOf(t *testing.T, admin kubernetes.Interface, node string) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	list, err := admin.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	var own []certificatesv1.CertificateSigningRequest
	for _, r := range list.Items {
		block, _ := pem.Decode(r.Spec.Request)
		if block != nil && bytes.Contains(block.Bytes, []byte(contract.KubeletUserPrefix+node)) {
			own = append(own, r)
		}
	}
	return own
}

// eventually waits until check returns nil. what describes the condition for the error message.
func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-deadline.C:
			t.Fatalf("waiting for %s: %v", what, err)
		}
	}
}

var errWait = errors.New("not yet")
