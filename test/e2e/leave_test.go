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
	// Objects that existed before must exist afterwards.
	environment := hosts[0].Machine.Host().Environment
	if err := environment.Set(t.Context(), "HTTP_PROXY", "http://before.example"); err != nil {
		t.Fatal(err)
	}
	hosts[0].Before = hosts[0].Machine.Snapshot()
	s.join(t, hosts...)
	if left := scene.Left(hosts[0]); len(left) == 0 {
		t.Fatal("joining changed nothing, so this test could not fail")
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
	for _, e := range events.Items { // W405 would send the administrator to look for a virus scanner
		if e.Type == corev1.EventTypeWarning &&
			strings.Contains(e.InvolvedObject.Name+e.Message, hosts[0].Address().Addr().String()) {
			t.Errorf("a removal without trouble warns: %s: %s", e.Reason, e.Message)
		}
	}
	s.ready(t, hosts[1])
	// Its key is forgotten: the host may come back reinstalled.
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

// clean checks that hosts which left are as they were before.
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
	s.await(t, "the join to be under way", func(ctx context.Context) (bool, string, error) {
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
		t.Errorf("the host left after %s, and its pod has a grace period of 4 s", took)
	}
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); client.IgnoreNotFound(err) != nil ||
		err == nil {
		t.Errorf("the pod is still there: %v", err)
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
	s.await(t, "the fix to be named", func(ctx context.Context) (bool, string, error) {
		i, err := s.Instance(ctx, hosts[0])
		if err != nil {
			return false, "", err
		}
		return i.Status.Phase == v1alpha1.PhaseRemoving && i.Status.Reason == string(contract.ReasonUnreachable) &&
			strings.Contains(i.Status.Fix, `"removalPolicy":"Force"`), i.Status.Reason + " " + i.Status.Fix, nil
	})
	if node := s.node(t, hosts[0]); !node.Spec.Unschedulable {
		t.Error("pods may still be scheduled to a host that is to leave")
	}
	// Nothing else waits for it.
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

// pod puts a pod on a host, and waits until it runs.
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
