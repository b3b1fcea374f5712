package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
)

// On Azure, the node manager on the host must initialise the Node. Neither the lab's cloud nor kubelet does this.
func TestA40_OnAzureNodesAreInitialisedByTheirHosts(t *testing.T) {
	t.Parallel()
	o := options(1)
	o.Platform, o.Cloud = configv1.AzurePlatformType, cloud.Options{Provision: 200 * time.Millisecond}
	s := own(t, o)
	listed := s.hosts(t, 1)
	s.add(t, listed...)
	if _, err := s.NewMachineSet(t.Context(), "windows", 1); err != nil {
		t.Fatal(err)
	}
	m := s.running(t, "windows", 1)[0]
	s.ready(t, listed...)
	node := s.nodeOf(t, &m)
	s.initialised(t, listed[0].Name)
	first := s.initialised(t, node.Name)
	if first.Spec.ProviderID != *m.Spec.ProviderID {
		t.Errorf("the Node's provider ID is %s, want that of its Machine, %s", first.Spec.ProviderID,
			*m.Spec.ProviderID)
	}
	s.lists(t, "A03", "A40")

	t.Log("a Node that is made anew is initialised, too: the tokens of the one before ended with it")
	if err := s.Client.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if again := s.initialised(t, node.Name); again.UID == first.UID {
		t.Error("the Node was not replaced")
	}
}

// initialised waits until the node manager on the host has initialised a Node.
func (s *stage) initialised(t *testing.T, name string) *corev1.Node {
	t.Helper()
	node := &corev1.Node{}
	s.await(t, "node "+name+" initialised", func(ctx context.Context) (bool, string, error) {
		if err := s.Client.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return false, "", client.IgnoreNotFound(err)
		}
		uninitialized := slices.ContainsFunc(node.Spec.Taints,
			func(taint corev1.Taint) bool { return taint.Key == "node.cloudprovider.kubernetes.io/uninitialized" })
		dns := slices.ContainsFunc(node.Status.Addresses,
			func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalDNS })
		done := !uninitialized && node.Spec.ProviderID != "" && dns &&
			node.Labels[corev1.LabelTopologyZone] == cloud.AzureRegion+"-"+cloud.AzureZone &&
			node.Labels[corev1.LabelTopologyRegion] == cloud.AzureRegion
		return done, fmt.Sprintf("%+v, %v, %v (%s)", node.Spec, node.Labels, node.Status.Addresses,
			node.Annotations[contract.ApplyStatusAnnotation]), nil
	})
	return node
}
