package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// ask sets an annotation that requests a reboot of a node.
func (v *trip) ask(t *testing.T, h *fleet.Host, annotation string) {
	t.Helper()
	node := &corev1.Node{}
	node.Name = h.Name
	must(t, v.Client.Patch(t.Context(), node, merge(`{"metadata":{"annotations":{"`+annotation+`":""}}}`)))
}

// rebooted waits until a node has a new boot ID, no reboot request and no slot.
func (v *trip) rebooted(t *testing.T, h *fleet.Host, before string) {
	t.Helper()
	v.until(t, h.Name+" to have rebooted", func(ctx context.Context) (bool, string, error) {
		node := &corev1.Node{}
		if err := v.Client.Get(ctx, client.ObjectKey{Name: h.Name}, node); err != nil {
			return false, "", err
		}
		i, err := v.Instance(ctx, h)
		if err != nil {
			return false, "", err
		}
		asked := false
		for _, annotation := range []string{contract.RebootRequiredAnnotation, contract.RebootRequestedAnnotation,
			contract.RebootApprovedAnnotation} {
			_, there := node.Annotations[annotation]
			asked = asked || there
		}
		boot := node.Annotations[contract.BootIDAnnotation]
		done := boot != before && boot == bootID(t, h) && !asked && policy.IsReady(node) && i.Status.Reboot() == nil &&
			!i.Status.HasSlot()
		return done, fmt.Sprintf("%s %s: %s; boot %s, reboot requested: %v, slot %+v", i.Status.Phase, i.Status.Reason(),
			i.Status.Message(), boot, asked, i.Status.Reboot()), nil
	})
}

func TestA30_AHostIsRebootedWhenAskedAndOnlyOurCordonIsLifted(t *testing.T) {
	t.Parallel()
	v := depart(t, rolling(3, 1))
	last := v.hosts[2]
	before := bootID(t, last)
	v.rebootsWhenAsked(t, v.hosts[:2]...)
	v.drains(t, last)
	theirs := v.node(t, last)
	patch := client.MergeFrom(theirs.DeepCopy())
	theirs.Spec.Unschedulable = true
	must(t, v.Client.Patch(t.Context(), theirs, patch))
	v.ask(t, last, contract.RebootRequestedAnnotation)
	v.rebooted(t, last, before)
	if node := v.node(t, last); !node.Spec.Unschedulable {
		t.Error("the operator removed the administrator's cordon")
	}
	v.well(t)
	v.drained(t, last)
}

// rebootsWhenAsked reboots nodes. The user and the daemon request the reboots in turn.
func (v *trip) rebootsWhenAsked(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	boots := map[string]string{}
	for _, h := range hosts {
		boots[h.Name] = bootID(t, h)
		v.drains(t, h)
	}
	for i, h := range hosts {
		v.ask(t, h, []string{contract.RebootRequestedAnnotation, contract.RebootRequiredAnnotation}[i%2])
	}
	for _, h := range hosts {
		v.rebooted(t, h, boots[h.Name])
		if bootID(t, h) == boots[h.Name] {
			t.Errorf("%s was not rebooted", h.Name)
		}
	}
	v.drained(t, hosts...)
	v.inService(t, hosts...)
	v.well(t)
}

// drains creates a pod on a node. A drain must evict it.
func (v *trip) drains(t *testing.T, h *fleet.Host) {
	t.Helper()
	pod := v.pod(t, h, 1)
	t.Cleanup(func() { _ = client.IgnoreNotFound(v.Client.Delete(context.WithoutCancel(t.Context()), pod)) })
}

// drained checks that the pods that drains created are gone.
func (v *trip) drained(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	for _, h := range hosts {
		err := v.Client.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "pod-on-" + h.Name},
			&corev1.Pod{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("%s was not drained: %v", h.Name, err)
		}
	}
}

func TestA30_AHostThatDoesNotComeBackHoldsOnePlace(t *testing.T) {
	t.Parallel()
	v := depart(t, rolling(3, 2))
	away, other := v.hosts[0], v.hosts[1]
	boots := map[*fleet.Host]string{away: bootID(t, away), other: bootID(t, other)}
	away.Machine.HoldOff(true)
	v.ask(t, away, contract.RebootRequestedAnnotation)
	v.until(t, "the host to be down, and its instance to report the reboot", func(ctx context.Context) (bool, string,
		error) {
		i, err := v.Instance(ctx, away)
		if err != nil {
			return false, "", err
		}
		node := &corev1.Node{}
		err = v.Client.Get(ctx, client.ObjectKey{Name: away.Name}, node)
		reported := i.Status.Phase == v1alpha1.PhaseRebooting && i.Status.Reason() == string(contract.ReasonRebooting) &&
			i.Status.HasSlot()
		return reported && !policy.IsReady(node),
			fmt.Sprintf("%s %s: %s", i.Status.Phase, i.Status.Reason(), i.Status.Message()),
			err
	})
	v.ask(t, other, contract.RebootRequiredAnnotation)
	v.rebooted(t, other, boots[other])
	v.inService(t, other)
	if i := v.instance(t, away); !i.Status.HasSlot() || i.Status.Reason() != string(contract.ReasonRebooting) {
		t.Errorf("the host that is down has the slot %+v and the reason %s", i.Status.Slot, i.Status.Reason())
	}
	away.Machine.HoldOff(false)
	away.Machine.PowerOn()
	v.rebooted(t, away, boots[away])
	v.inService(t, v.hosts...)
	v.well(t)
}

func TestA30_OnAWSTheMetadataRouteWorksAfterAReboot(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "reboots", 1)
	m := s.running(t, "reboots", 1)[0]
	h := s.host(t, &m)
	metadata := netip.MustParseAddr("169.254.169.254")
	if !h.Machine.Routes()[metadata] {
		t.Fatal("the host had no metadata route before the reboot, so this test can't fail")
	}
	before, connections := bootID(t, h), h.Server.Counters().Connections
	node := s.nodeOf(t, &m)
	must(t, s.Client.Patch(t.Context(), node,
		merge(`{"metadata":{"annotations":{"`+contract.RebootRequestedAnnotation+`":""}}}`)))
	// A reboot deletes routes of this kind, as a reset of the network card does.
	s.await(t, "the node to be back, with its route", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(node), node)
		_, asked := node.Annotations[contract.RebootRequestedAnnotation]
		done := !asked && policy.IsReady(node) && !node.Spec.Unschedulable &&
			node.Annotations[contract.BootIDAnnotation] == bootID(t, h)
		return done && h.Machine.Routes()[metadata],
			fmt.Sprintf("reboot requested: %v, route exists: %v", asked, h.Machine.Routes()[metadata]), err
	})
	if bootID(t, h) == before {
		t.Error("the host was not rebooted")
	}
	if n := h.Server.Counters().Connections - connections; n > 0 {
		t.Errorf("the reboot needed %d SSH connections, want none", n)
	}
}

// Creating or deleting an HNS network deletes the route to the metadata service. A host needs this route to learn its
// name. Without the route, a host that was removed could never join again.
func TestOnAWSAHostThatLeavesAndIsListedAgainJoins(t *testing.T) {
	t.Parallel()
	o := options(1)
	o.Platform = configv1.AWSPlatformType
	s := own(t, o)
	h := s.hosts(t, 1)[0]
	metadata := netip.MustParseAddr("169.254.169.254")
	for range 2 {
		s.join(t, h)
		if !h.Machine.Routes()[metadata] {
			t.Error("a node has no route to the metadata service")
		}
		s.drop(t, h)
		s.gone(t, h)
		if left := scene.Left(h); len(left) > 0 {
			t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
		}
	}
	s.join(t, h)
}
