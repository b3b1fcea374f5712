package e2e_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host/sshhost"
	"github.com/windows-nodes/wmco/lab/cloud"
)

func TestA03_MachinesBecomeNodes(t *testing.T) {
	s := cloudStage(t)
	listed := s.hosts(t, 1)
	s.add(t, listed...)
	set := s.set(t, "nodes", 2)
	for _, m := range s.running(t, "nodes", 2) {
		node, instance, host := s.nodeOf(t, &m), s.named(t, &m), s.host(t, &m)
		if node.Name != host.Name || instance.Status.NodeName != host.Name {
			t.Errorf("machine %s has the node %s, its instance has the node %s; want %s", m.Name, node.Name,
				instance.Status.NodeName,
				host.Name)
		}
		if node.Spec.ProviderID != *m.Spec.ProviderID || instance.Spec.ProviderID != *m.Spec.ProviderID {
			t.Errorf("machine %s has the provider ID %s, its node %s, its instance %s", m.Name, *m.Spec.ProviderID,
				node.Spec.ProviderID, instance.Spec.ProviderID)
		}
		if node.Spec.Unschedulable {
			t.Errorf("%s is not schedulable", m.Name)
		}
		for key, want := range map[string]string{contract.WorkerLabel: "", contract.OSIDLabel: "Windows",
			corev1.LabelOSStable: "windows", contract.BuildLabel: "10.0.20348"} {
			if got, ok := node.Labels[key]; !ok || got != want {
				t.Errorf("%s: label %s = %q, want %q", m.Name, key, got, want)
			}
		}
		if _, marked := node.Labels[contract.BYOHLabel]; marked {
			t.Errorf("%s: the node of a machine has the label %s", m.Name, contract.BYOHLabel)
		}
		if first := node.Spec.Taints[0]; first.Key != contract.TaintKey || first.Value != contract.TaintValue ||
			first.Effect != corev1.TaintEffectNoSchedule {
			t.Errorf("%s: taints %v, want os=Windows:NoSchedule first", m.Name, node.Spec.Taints)
		}
		if source := instance.Spec.Source; source == nil || source.Kind != v1alpha1.SourceMachine ||
			source.Name != m.Name || source.UID != m.UID {
			t.Errorf("%s: its instance has the source %+v", m.Name, source)
		}
		if c := host.Server.Counters(); c.Connections != 1 || c.Commands > 4 || c.SFTPSessions > 1 ||
			c.PowerShellStarts != 0 {
			t.Errorf("%s: %+v; want at most one connection, four commands, one SFTP session and no PowerShell", m.Name,
				c)
		}
		s.told(t, &m, "MachineSetup", "")
	}
	s.await(t, "the MachineSet to count its Machines", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(set), set)
		return set.Status.ReadyReplicas == 2 && set.Status.AvailableReplicas == 2, "", err
	})
	s.ready(t, listed...)
}

func TestA03_AMachineIsMadeWhileTheOperatorIsDown(t *testing.T) {
	s := cloudStage(t)
	if err := s.WaitUserData(t.Context(), soon); err != nil {
		t.Fatal(err)
	}
	if err := s.Operator.Kill(); err != nil {
		t.Fatal(err)
	}
	s.set(t, "down", 2)
	s.booted(t, "down", 2)
	if err := s.Operator.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.running(t, "down", 2)
}

func TestA03_AMachineLeavesWhileTheOperatorIsDown(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "left", 2)
	machines := s.running(t, "left", 2)
	if err := s.Operator.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Scale(t.Context(), &machines[0], "left", -1); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the Machine to be deleted", func(ctx context.Context) (bool, string, error) {
		left, err := s.Machines(ctx, "left")
		return len(left) == 1, "", err
	})
	if err := s.Operator.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitMachineGone(t.Context(), soon, &machines[0]); err != nil {
		t.Fatal(err)
	}
	s.running(t, "left", 1)
}

func TestA03_MachinesThatAreNotOursAreLeftAlone(t *testing.T) {
	s := cloudStage(t)
	ignored := s.lone(t, "ignored", func(m *machinev1beta1.Machine) { m.Labels[contract.IgnoreLabel] = "true" })
	linux := s.lone(t, "linux", func(m *machinev1beta1.Machine) { delete(m.Labels, contract.MachineOSLabel) })
	silent := s.lone(
		t, "silent", func(
			m *machinev1beta1.Machine) {
			m.Annotations[cloud.FaultAnnotation] = string(cloud.FaultNoAddress)
		})
	s.set(t, "beside", 1)
	s.running(t, "beside", 1) // after this join, the operator has had enough time to contact the other Machines
	for _, m := range []*machinev1beta1.Machine{ignored, linux, silent} {
		s.await(t, m.Name+" to be provisioned", func(ctx context.Context) (bool, string, error) {
			err := s.Client.Get(ctx, client.ObjectKeyFromObject(m), m)
			return ptr.Deref(m.Status.Phase, "") == machinev1beta1.PhaseProvisioned, ptr.Deref(m.Status.Phase, ""), err
		})
		if i, err := s.InstanceNamed(t.Context(), m.Name); err == nil {
			t.Errorf("the ignored machine %s has an instance: %s", m.Name, i.Status.Message())
		}
		if h, ok := s.Cloud.Host(m.Name); ok && h.Server.Counters().Connections > 0 {
			t.Errorf("the ignored machine %s was contacted", m.Name)
		}
	}
	// A Machine that is no longer ignored becomes a node.
	patch := client.MergeFrom(ignored.DeepCopy())
	delete(ignored.Labels, contract.IgnoreLabel)
	if err := s.Client.Patch(t.Context(), ignored, patch); err != nil {
		t.Fatal(err)
	}
	s.reason(t, ignored, contract.ReasonNodeReady)
}

func TestA03_AMachineWithoutProviderIDBecomesANode(t *testing.T) {
	s := cloudStage(t)
	m := s.lone(t, "anonymous", func(m *machinev1beta1.Machine) {
		m.Annotations[cloud.FaultAnnotation] = string(cloud.FaultNoProviderID)
	})
	s.reason(t, m, contract.ReasonNodeReady)
}

func TestA05_NodesOfMachinesHaveTheAnnotationsOfTheContract(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "annotated", 1)
	m := s.running(t, "annotated", 1)[0]
	node, instance := s.nodeOf(t, &m), s.named(t, &m)
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
	if instance.Status.PublicKeyHash != key.Hash {
		t.Errorf("the instance reports the accepted key %s, want %s", instance.Status.PublicKeyHash, key.Hash)
	}
}

func TestA07_RequestsOfMachinesAreApproved(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "asking", 1)
	m := s.running(t, "asking", 1)[0]
	name := m.Status.NodeRef.Name
	s.await(t, "the serving certificate", func(ctx context.Context) (bool, string, error) {
		list := &certificatesv1.CertificateSigningRequestList{}
		if err := s.Client.List(ctx, list); err != nil {
			return false, "", err
		}
		approvals := map[string]string{}
		for _, csr := range list.Items {
			if about(csr, name) && len(csr.Status.Conditions) > 0 &&
				csr.CreationTimestamp.After(m.CreationTimestamp.Add(-time.Second)) {
				approvals[csr.Spec.SignerName] = csr.Status.Conditions[0].Reason
			}
		}
		return approvals[certificatesv1.KubeAPIServerClientKubeletSignerName] == "WMCOApprove" &&
				approvals[certificatesv1.KubeletServingSignerName] == "WMCOApprove" &&
				approvals[certificatesv1.KubeAPIServerClientSignerName] == "WICDAutoApproved",
			strings.Join(values(approvals), " "), nil
	})
}

func TestA09_AMachineShowsTheHostKeyOfItsUserDataAtFirst(t *testing.T) {
	s := cloudStage(t)
	s.age(t)
	s.Cloud.Spoil("impostor", cloud.FaultHostKey, 1)
	s.set(t, "impostor", 1)
	s.set(t, "honest", 1)
	honest := s.running(t, "honest", 1)[0]
	impostor := s.booted(t, "impostor", 1)[0]
	s.reason(t, &impostor, contract.ReasonHostKeyMismatch)
	if c := s.host(t, &impostor).Server.Counters(); c.Authenticated != 0 {
		t.Error("the operator logged in to a host whose host key is not the key of its user data")
	}
	// Meanwhile, the operator has pinned the host's own key. No workload can read this key from the metadata service.
	setup, err := cloud.Evaluate(platform, s.userData(t, contract.MachineAPINamespace), nil)
	if err != nil || setup.HostKey == nil {
		t.Fatalf("the user data contains no host key: %v", err)
	}
	shared := string(bytes.TrimSpace(authorized(setup.HostKey.PublicKey())))
	if pinned := s.named(t, &honest).Status.HostKey; pinned == shared || pinned == "" {
		t.Errorf("the operator pinned %q, which is the shared key of the user data", pinned)
	}
	// From now on, the pinned key is required, even when the host joins again.
	host := s.host(t, &honest)
	node := s.nodeOf(t, &honest)
	before := host.Server.Counters().Connections
	if err = s.Client.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the node to be back", func(ctx context.Context) (bool, string, error) {
		again := &corev1.Node{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: node.Name}, again)
		return err == nil && again.UID != node.UID &&
			host.Server.Counters().Connections > before, "", client.IgnoreNotFound(err)
	})
	s.running(t, "honest", 1)
}
