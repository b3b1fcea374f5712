package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestA84_AHostThatAnotherOperatorCleanedJoinsWithoutAVisit(t *testing.T) {
	s := sharedStage(t)
	host := s.hosts(t, 1)[0]
	if err := host.Machine.PredecessorRemains(); err != nil {
		t.Fatal(err)
	}
	before := host.Machine.Snapshot()
	s.join(t, host)
	s.await(t, "an event about the deleted keys", func(ctx context.Context) (bool, string, error) {
		list := &eventsv1.EventList{}
		err := s.Client.List(ctx, list, client.InNamespace(contract.OperatorNamespace))
		for _, e := range list.Items {
			if e.Reason == journey.EventKeysDeleted && strings.Contains(e.Note, host.Machine.Address().String()) &&
				strings.Contains(e.Note, contract.DirKubeletPKI) {
				return true, "", err
			}
		}
		return false, "", err
	})
	s.drop(t, host)
	s.gone(t, host)
	for _, line := range sim.Diff(before, host.Machine.Snapshot(), contract.DirLog, contract.DirKubeletPKI) {
		// Pulled images stay, because their directory existed before the join.
		if !strings.HasPrefix(strings.ToLower(line), `+ file `+strings.ToLower(contract.DirContainerdData)) {
			t.Error("not removed from the host:", line)
		}
	}
}

func TestA84_AHostThatAnotherOperatorDidNotCleanIsRefusedAndStaysAsItIs(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 2)
	before, nodes := map[*fleet.Host]sim.Snapshot{}, map[*fleet.Host]*corev1.Node{}
	for i, access := range []winos.Access{winos.AccessInherit, winos.AccessAdministrators} {
		if err := hosts[i].Machine.Predecessor(t.Context(), access); err != nil {
			t.Fatal(err)
		}
		before[hosts[i]], nodes[hosts[i]] = hosts[i].Machine.Snapshot(), s.predecessor(t, hosts[i])
	}
	s.add(t, hosts...)
	for _, h := range hosts {
		s.await(t, "the host to be refused", func(ctx context.Context) (bool, string, error) {
			i, err := s.Instance(ctx, h)
			if err != nil {
				return false, "", client.IgnoreNotFound(err)
			}
			return i.Status.Reason() == string(contract.ReasonConflictingSoftware) &&
				fixOf(i) != "" && strings.Contains(i.Status.Message(), contract.DirK) &&
				strings.Contains(i.Status.Message(), "service "+contract.ServiceKubelet), i.Status.Message(), nil
		})
		s.untouched(t, h, before[h], nodes[h])
	}
	// The user deletes the mistaken entries.
	s.drop(t, hosts...)
	for _, h := range hosts {
		s.await(t, "the instance to be deleted", func(ctx context.Context) (bool, string, error) {
			i, err := s.Instance(ctx, h)
			if apierrors.IsNotFound(err) {
				return true, "", nil
			}
			return false, i.Status.Message(), err
		})
		s.untouched(t, h, before[h], nodes[h])
	}
}

// predecessor creates the Node that another operator has created for a host, with a pod.
func (s *stage) predecessor(t *testing.T, h *fleet.Host) *corev1.Node {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Name,
		Labels: map[string]string{corev1.LabelOSStable: "windows", contract.BYOHLabel: "true", contract.WorkerLabel: ""},
		Annotations: map[string]string{contract.RevisionAnnotation: "10.18.0-1a2b3c4",
			contract.DesiredRevisionAnnotation: "10.18.0-1a2b3c4"}}}
	if err := s.Client.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	created := node.DeepCopy()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: h.Machine.Address().String()}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
		Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
	if err := s.Client.Status().Patch(t.Context(), node, client.MergeFrom(created)); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "theirs-" + h.Name},
		Spec: corev1.PodSpec{NodeName: h.Name, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "app", Image: "app"}}}}
	if err := s.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		for _, o := range []client.Object{pod, node} {
			if err := s.Client.Delete(ctx, o, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		}
	})
	return node
}

// untouched checks that a host, its Node and its pod did not change.
func (s *stage) untouched(t *testing.T, h *fleet.Host, before sim.Snapshot, node *corev1.Node) {
	t.Helper()
	// Wait, because a try uploads files to the host and deletes them again, and a try may be running.
	s.await(t, "the host to be unchanged", func(context.Context) (bool, string, error) {
		left := sim.Diff(before, h.Machine.Snapshot())
		return len(left) == 0, strings.Join(left, "\n"), nil
	})
	services := h.Machine.Host().Services
	for _, name := range []string{contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceDaemon} {
		if found, err := services.Get(t.Context(), name); err != nil || found.State != winos.ServiceRunning {
			t.Errorf("%s: service %s is %s, %v", h.Name, name, found.State, err)
		}
	}
	now := s.node(t, h)
	if now.UID != node.UID || now.Spec.Unschedulable || !now.DeletionTimestamp.IsZero() ||
		now.Labels[contract.UpgradingLabel] != "" || now.Annotations[contract.InstanceAnnotation] != "" ||
		now.Annotations[contract.DesiredRevisionAnnotation] != node.Annotations[contract.DesiredRevisionAnnotation] {
		t.Errorf("the other operator's Node was changed: %v %v", now.ObjectMeta, now.Spec)
	}
	pod := &corev1.Pod{}
	if err := s.Client.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "theirs-" + h.Name},
		pod); err != nil || !pod.DeletionTimestamp.IsZero() {
		t.Errorf("the pod on the other operator's Node was evicted: %v %v", pod.DeletionTimestamp, err)
	}
}
