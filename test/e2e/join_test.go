package e2e_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/host/sshhost"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/openshift"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestA01_TheOperatorIsAvailableBeforeTheKeyIsAndSaysSo(t *testing.T) {
	t.Parallel()
	o := options(1)
	o.NoKey = true
	s := own(t, o) // Start waits until the operator is healthy
	hosts := s.hosts(t, 1)
	s.add(t, hosts...)
	s.await(t, "the status to name the missing key", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
			return false, "", client.IgnoreNotFound(err)
		}
		c := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionAvailable)
		if c == nil {
			return false, "no condition", nil
		}
		return c.Status == metav1.ConditionFalse && c.Reason == string(contract.ReasonPrivateKeyMissing) &&
			strings.Contains(c.Message, "kubectl create secret"), c.Message, nil
	})
	s.await(t, "the instance to say so, too", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, hosts[0])
		if err != nil {
			return false, "", client.IgnoreNotFound(err)
		}
		return i.Status.Reason() == string(contract.ReasonPrivateKeyMissing), i.Status.Reason(), nil
	})
	if connections := hosts[0].Server.Counters().Connections; connections != 0 {
		t.Errorf("without an SSH key, the operator made %d SSH connections", connections)
	}
	if err := s.PutKey(t.Context(), s.Key); err != nil {
		t.Fatal(err)
	}
	s.ready(t, hosts...)
	s.await(t, "the operator to be available", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		return meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.ConditionAvailable) &&
			meta.IsStatusConditionTrue(config.Status.Conditions, v1alpha1.ConditionUpgradeable), "", err
	})
}

func TestA02_EachEntryBecomesANode(t *testing.T) {
	t.Parallel()
	o := options(3)
	o.Hosts.Edit = func(i int, o *sim.Options) {
		switch i {
		case 0:
			o.Address = netip.MustParseAddr("127.0.0.1") // the DNS name localhost resolves to this address
		case 1:
			o.Shell = sim.ShellPowerShell
		}
	}
	s := own(t, o)
	hosts := s.hosts(t, 3)
	_, value := hosts[0].Entry()
	s.addRaw(t, map[string]string{"localhost": value})
	s.join(t, hosts[1:]...)
	s.await(t, "the host listed by its DNS name", func(ctx context.Context) (bool, string, error) {
		i := &v1alpha1.WindowsInstance{}
		err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace, Name: "localhost"}, i)
		return i.Status.Phase == v1alpha1.PhaseReady &&
			i.Status.NodeName == hosts[0].Name, i.Status.Message(), client.IgnoreNotFound(err)
	})
	cheaplyJoined(t, hosts...)
	for i, h := range hosts {
		if c := h.Server.Counters(); i != 1 && c.PowerShellStarts != 0 {
			t.Errorf("%s: PowerShell was started %d times", h.Name, c.PowerShellStarts)
		}
	}
}

// cheaplyJoined checks the number of connections and commands that joins needed.
func cheaplyJoined(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	for _, h := range hosts {
		if c := h.Server.Counters(); c.Connections != 1 || c.Commands > 4 || c.SFTPSessions > 1 {
			t.Errorf("%s: %d connections, %d commands, %d SFTP sessions; want 1, at most 4, at most 1", h.Name,
				c.Connections, c.Commands, c.SFTPSessions)
		}
	}
}

func TestA04_NodesAreWhole(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	s.whole(t, hosts...)
}

// whole checks that nodes have all labels, taints and services that pods and users expect.
func (s *stage) whole(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	for _, h := range hosts {
		node := s.node(t, h)
		if node.Spec.Unschedulable {
			t.Errorf("%s is not schedulable", h.Name)
		}
		for key, want := range map[string]string{
			contract.WorkerLabel: "", contract.OSIDLabel: "Windows", corev1.LabelOSStable: "windows",
			contract.BuildLabel: "10.0.20348", contract.BYOHLabel: "true",
		} {
			if got, ok := node.Labels[key]; !ok || got != want {
				t.Errorf("%s: label %s = %q, want %q", h.Name, key, got, want)
			}
		}
		if len(node.Spec.Taints) == 0 || node.Spec.Taints[0].Key != "os" || node.Spec.Taints[0].Value != "Windows" ||
			node.Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule {
			t.Errorf("%s: taints %v, want os=Windows:NoSchedule first", h.Name, node.Spec.Taints)
		}
		if node.Status.Allocatable.Cpu().IsZero() || node.Status.Allocatable.Memory().IsZero() ||
			node.Status.Allocatable.Pods().IsZero() {
			t.Errorf("%s: allocatable %v", h.Name, node.Status.Allocatable)
		}
		if node.Status.NodeInfo.KubeletVersion != "v1.36.3" {
			t.Errorf("%s has kubelet %s, want the version of the payload", h.Name, node.Status.NodeInfo.KubeletVersion)
		}
	}
}

func TestA04_LinuxNodesCarryNoneOfOurMarks(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	linux := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "linux-worker",
		Labels: map[string]string{corev1.LabelOSStable: "linux"}}}
	if err := s.Client.Create(t.Context(), linux); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Client.Delete(context.WithoutCancel(t.Context()), linux) })
	s.join(t, hosts...)
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(linux), linux); err != nil {
		t.Fatal(err)
	}
	for key := range linux.Labels {
		if strings.HasPrefix(key, contract.Prefix) || key == contract.WorkerLabel {
			t.Errorf("a Linux node has the label %s", key)
		}
	}
	for key := range linux.Annotations {
		if strings.HasPrefix(key, contract.Prefix) {
			t.Errorf("a Linux node has the annotation %s", key)
		}
	}
}

func TestA05_AnnotationsOfTheContractAreRight(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	s.annotated(t, hosts[0])
}

// annotated checks the annotations of a node, and that the manifest of its revision exists.
func (s *stage) annotated(t *testing.T, h *fleet.Host) {
	t.Helper()
	node, instance := s.node(t, h), s.instance(t, h)
	key, err := sshhost.ParseKey(s.Key.PEM)
	if err != nil {
		t.Fatal(err)
	}
	keyType, hostKey, _ := strings.Cut(instance.Status.HostKey, " ")
	for name, want := range map[string]string{
		contract.RevisionAnnotation:        instance.Status.Revision,
		contract.DesiredRevisionAnnotation: instance.Status.Revision,
		contract.PublicKeyHashAnnotation:   key.Hash, contract.HostKeyAnnotation: hostKey,
		contract.HostKeyTypeAnnotation: keyType,
		contract.InstanceAnnotation:    contract.OperatorNamespace + "/" + instance.Name,
	} {
		if got := node.Annotations[name]; got != want || want == "" {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	manifest := &corev1.ConfigMap{}
	name := contract.ServicesConfigMapPrefix + instance.Status.Revision
	if err = s.Client.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace, Name: name},
		manifest); err != nil {
		t.Errorf("there is no manifest of the node's revision: %v", err)
	}
}

func TestA06_ExpectedServicesRunAndNoOthers(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	s.runsExactly(t, hosts[0], append(everywhereServices(), contract.ServiceHybridOverlay, contract.ServiceKubeProxy))
}

// everywhereServices returns the managed services that every node has, with any network.
func everywhereServices() []string {
	return []string{contract.ServiceContainerd, contract.ServiceCSIProxy, contract.ServiceKubelet,
		contract.ServiceDaemon, contract.ServiceExporter}
}

// runsExactly checks that a host has exactly these managed services and that all run. The exporter may start after the
// Node is Ready, because it needs kubelet's certificate.
func (s *stage) runsExactly(t *testing.T, h *fleet.Host, want []string) {
	t.Helper()
	s.await(t, "the services", func(context.Context) (bool, string, error) {
		var got []string
		for name, service := range managed(t, h) {
			if got = append(got, name); service.State != winos.ServiceRunning {
				return false, name + " is " + string(service.State), nil
			}
		}
		return sorted(got) == sorted(want), fmt.Sprintf("managed services %v, want %v", got, want), nil
	})
	if !slices.Contains(want, contract.ServiceKubeProxy) {
		return
	}
	s.await(t, "kube-proxy to read Services with kubelet's identity", func(context.Context) (bool, string, error) {
		log, err := winos.ReadFile(h.Machine.Host().Files, contract.DirLog+`\kube-proxy\kube-proxy.log`)
		return strings.Contains(string(log), "services are known"), string(log), err
	})
}

func TestA07_AllRequestsOfOurNodesAreApprovedByUs(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	name := hosts[0].Name
	s.await(t, "the serving certificate", func(ctx context.Context) (bool, string, error) {
		list := &certificatesv1.CertificateSigningRequestList{}
		if err := s.Client.List(ctx, list); err != nil {
			return false, "", err
		}
		approvals := map[string]string{}
		for _, csr := range list.Items {
			if about(csr, name) && len(csr.Status.Conditions) > 0 {
				approvals[csr.Spec.SignerName] = csr.Status.Conditions[0].Reason
			}
		}
		return approvals[certificatesv1.KubeAPIServerClientKubeletSignerName] == "WMCOApprove" &&
				approvals[certificatesv1.KubeletServingSignerName] == "WMCOApprove" &&
				approvals[certificatesv1.KubeAPIServerClientSignerName] == "WICDAutoApproved",
			strings.Join(values(approvals), " "), nil
	})
}

// The request is made with kubelet's certificate, and it is for the signer of daemons' certificates. OVN-Kubernetes
// approves the overlay's requests, so the operator must neither approve nor deny it.
func TestA07_TheRequestOfANodesHybridOverlayIsDecidedByTheNetworkOnly(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	const current = contract.DirCNIConfig + `\ovnkube-client-current.pem`
	s.await(t, "the overlay's certificate", func(context.Context) (bool, string, error) {
		there, err := winos.Exists(hosts[0].Machine.Host().Files, current)
		return there, "", err
	})
	list := &certificatesv1.CertificateSigningRequestList{}
	if err := s.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	requests := slices.DeleteFunc(list.Items, func(csr certificatesv1.CertificateSigningRequest) bool {
		return commonName(csr) != overlayUser+hosts[0].Name
	})
	if len(requests) != 1 || len(requests[0].Status.Conditions) != 1 ||
		requests[0].Status.Conditions[0].Reason != openshift.OverlayApproved ||
		requests[0].Spec.Username != contract.KubeletUserPrefix+hosts[0].Name {
		t.Errorf("the certificate requests of the overlay are %+v", requests)
	}
}

// overlayUser is the prefix of the user name of OVN-Kubernetes' node component. The node's name follows.
const overlayUser = "system:ovn-node:"

// about reports whether a request is for a node's identity. If so, the operator decides about it.
func about(csr certificatesv1.CertificateSigningRequest, node string) bool {
	if commonName(csr) == overlayUser+node {
		return false
	}
	return csr.Spec.Username == contract.KubeletUserPrefix+node || commonName(csr) == contract.KubeletUserPrefix+node ||
		commonName(csr) == contract.DaemonUserPrefix+node
}

func values(m map[string]string) (all []string) {
	for key, value := range m {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return all
}

// node reads a host's Node.
func (s *stage) node(t *testing.T, h *fleet.Host) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Name: h.Name}, node); err != nil {
		t.Fatal(err)
	}
	return node
}

// commonName returns the common name in a request.
func commonName(csr certificatesv1.CertificateSigningRequest) string {
	block, _ := pem.Decode(csr.Spec.Request)
	if block == nil {
		return ""
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return request.Subject.CommonName
}
