package e2e_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

func TestA32_AHostThatIsTakenOffTheListIsAsItWasBefore(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 2)
	// These objects exist before the join. They must still exist after the removal.
	environment := hosts[0].Machine.Host().Environment
	if err := environment.Set(t.Context(), "HTTP_PROXY", "http://before.example"); err != nil {
		t.Fatal(err)
	}
	hosts[0].Before = hosts[0].Machine.Snapshot()
	s.join(t, hosts...)
	if left := scene.Left(hosts[0]); len(left) == 0 {
		t.Fatal("joining did not change the host, so this test can't fail")
	}
	s.drop(t, hosts[0])
	s.gone(t, hosts[0])
	if left := scene.Left(hosts[0]); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
	logs, err := hosts[0].Machine.Host().Files.List(contract.DirLog)
	if err != nil || len(logs) == 0 {
		t.Errorf("the logs were not kept: %v %v", logs, err)
	}
	var events corev1.EventList
	if err := s.Client.List(t.Context(), &events); err != nil {
		t.Fatal(err)
	}
	// A removal without a problem must not report W405, which makes the administrator look for a virus scanner.
	for _, e := range events.Items {
		if e.Type == corev1.EventTypeWarning &&
			strings.Contains(e.InvolvedObject.Name+e.Message, hosts[0].Address().Addr().String()) {
			t.Errorf("a removal without a problem has a warning: %s: %s", e.Reason, e.Message)
		}
	}
	s.ready(t, hosts[1])
	// After the removal, the host's key must be forgotten, because the host may be reinstalled with a new key.
	other, err := sshd.NewHostKey()
	if err != nil {
		t.Fatal(err)
	}
	hosts[0].Server.Change(func(o *sshd.Settings) { o.HostKey = other })
	s.join(t, hosts[0])
}

func TestA32_TheListIsDeleted(t *testing.T) {
	t.Parallel()
	s := own(t, options(2))
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	s.drop(t, hosts...)
	s.gone(t, hosts...)
	s.clean(t, hosts...)
}

// clean checks that hosts that have left are in the same state as before they joined.
func (s *stage) clean(t *testing.T, hosts ...*fleet.Host) {
	t.Helper()
	for _, h := range hosts {
		if left := scene.Left(h); len(left) > 0 {
			t.Errorf("%s: left behind:\n%s", h.Name, strings.Join(left, "\n"))
		}
	}
}

func TestA32_AHostLeavesInMidJoin(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	hosts[0].Server.Change(func(o *sshd.Settings) { o.Latency = 100 * time.Millisecond })
	s.add(t, hosts...)
	s.await(t, "the host to be joining", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, hosts[0])
		if err != nil {
			return false, "", client.IgnoreNotFound(err)
		}
		return i.Status.HostKey != "", string(i.Status.Phase), nil
	})
	s.drop(t, hosts...)
	s.gone(t, hosts...)
	if left := scene.Left(hosts[0]); len(left) > 0 {
		t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
	}
}

func TestA32_PodsGetTheirGracePeriod(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 1)
	s.join(t, hosts...)
	pod := s.pod(t, hosts[0], 4)
	began := time.Now()
	s.drop(t, hosts...)
	s.gone(t, hosts...)
	if took := time.Since(began); took < 4*time.Second {
		t.Errorf("the host left after %s, but its pod has a grace period of 4 s", took)
	}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); client.IgnoreNotFound(err) != nil ||
		err == nil {
		t.Errorf("the pod was not deleted: %v", err)
	}
}

func TestA33_AHostThatIsGoneForGoodIsRemovedOnTheUsersWord(t *testing.T) {
	s := sharedStage(t)
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	hosts[0].Break(fleet.FaultUnreachable)
	hosts[0].Machine.HoldOff(true)
	hosts[0].Machine.PowerCut()
	s.drop(t, hosts[0])
	s.await(t, "the status to name the fix", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, hosts[0])
		if err != nil {
			return false, "", err
		}
		return i.Status.Phase == v1alpha1.PhaseRemoving && i.Status.Reason() == string(contract.ReasonUnreachable) &&
			strings.Contains(fixOf(i), `"removalPolicy":"Force"`), i.Status.Reason() + " " + fixOf(i), nil
	})
	if node := s.node(t, hosts[0]); !node.Spec.Unschedulable {
		t.Error("a host that is about to leave is still schedulable")
	}
	// Other hosts must still be able to join meanwhile.
	other := s.hosts(t, 1)
	s.join(t, other...)
	s.drop(t, hosts[1])
	s.gone(t, hosts[1])
	i := s.instance(t, hosts[0])
	patch := client.MergeFrom(i.DeepCopy())
	i.Spec.RemovalPolicy = v1alpha1.RemovalForce
	if err := s.Client.Patch(t.Context(), i, patch); err != nil {
		t.Fatal(err)
	}
	s.gone(t, hosts[0])
}

// pod creates a pod on a host, and waits until it runs.
func (s *stage) pod(t *testing.T, h *fleet.Host, grace int64) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-on-" + h.Name},
		Spec: corev1.PodSpec{
			NodeName: h.Name, TerminationGracePeriodSeconds: &grace,
			Containers:  []corev1.Container{{Name: "c", Image: "mcr.microsoft.com/windows/nanoserver:ltsc2022"}},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			OS:          &corev1.PodOS{Name: corev1.Windows},
		},
	}
	if err := s.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	s.await(t, "the pod to run", func(ctx context.Context) (bool, string, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.Phase == corev1.PodRunning, string(pod.Status.Phase), err
	})
	return pod
}
