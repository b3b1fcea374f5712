package e2e_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
)

// comes runs the join command of a WindowsInstance on a host. If the download fails, it runs the command again.
func (s *stage) comes(t *testing.T, host *fleet.Host, command string) {
	t.Helper()
	s.await(t, "the join command to succeed on "+host.Name, func(ctx context.Context) (bool, string, error) {
		output, err := fleet.RunJoinCommand(ctx, host.Machine, command)
		return err == nil, fmt.Sprint(err, output), nil
	})
}

// TestA85_AJoinByItselfSurvivesWhatFailsMeanwhile joins four hosts by their commands. During the joins, one host loses
// power, the operator is killed several times, and the API server is down for a while. All four hosts must become
// nodes.
func TestA85_AJoinByItselfSurvivesWhatFailsMeanwhile(t *testing.T) {
	t.Parallel()
	s := byItselfIn(t, 4, alone)
	hosts := s.hosts(t, 4)
	instances, commands := make([]*v1alpha1.WindowsInstance, len(hosts)), make([]string, len(hosts))
	for i := range hosts {
		instances[i], commands[i] = s.invite(t, fmt.Sprintf("win-%d", i))
	}
	for i, h := range hosts[:3] {
		s.comes(t, h, commands[i])
	}
	pause(t, 300*time.Millisecond)
	hosts[0].Machine.PowerCut()
	s.killed(t, 2, func() time.Duration { return 700 * time.Millisecond })
	s.comes(t, hosts[3], commands[3])
	must(t, s.Cluster.StopAPIServer())
	hosts[0].Machine.PowerOn()
	pause(t, 8*time.Second)
	must(t, s.Cluster.StartAPIServer(t.Context()))
	s.comes(t, hosts[1], commands[1]) // the administrator runs the command a second time
	for i, instance := range instances {
		s.joined(t, instance)
		if instance.Status.NodeName != hosts[i].Name {
			t.Errorf("instance %s has the node %s, want %s", instance.Name, instance.Status.NodeName, hosts[i].Name)
		}
	}
}

func TestA86_AHostWithoutSSHIsRebootedUpgradedAndRemoved(t *testing.T) {
	t.Parallel()
	s := byItself(t, 1)
	host := s.hosts(t, 1)[0]
	instance, command := s.invite(t, "win-a")
	s.comes(t, host, command)
	s.joined(t, instance)

	before, node := bootID(t, host), &corev1.Node{}
	node.Name = host.Name
	must(t, s.Client.Patch(t.Context(), node,
		merge(`{"metadata":{"annotations":{"`+contract.RebootRequestedAnnotation+`":""}}}`)))
	s.await(t, "the reboot", func(ctx context.Context) (bool, string, error) {
		if err := s.Client.Get(ctx, client.ObjectKey{Name: host.Name}, node); err != nil {
			return false, "", err
		}
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		_, asked := node.Annotations[contract.RebootRequestedAnnotation]
		return bootID(t, host) != before && !asked && policy.IsReady(node) && !node.Spec.Unschedulable &&
				instance.Status.Phase == v1alpha1.PhaseReady && !instance.Status.HasSlot(),
			fmt.Sprint(instance.Status.Phase, " ", instance.Status.Message()), err
	})

	from, dir := instance.Status.Revision, filepath.Join(s.Dir, "next")
	must(t, scene.ChangePayload(dir, s.PayloadDir(),
		scene.Change{Versions: map[string]string{kubeletExe: next, daemonExe: next}}))
	must(t, s.Upgrade(t.Context(), newerOperator(t), dir))
	s.await(t, "the upgrade", func(ctx context.Context) (bool, string, error) {
		if err := s.Client.Get(ctx, client.ObjectKey{Name: host.Name}, node); err != nil {
			return false, "", err
		}
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(instance), instance)
		return instance.Status.Revision != from && instance.Status.Phase == v1alpha1.PhaseReady &&
				node.Status.NodeInfo.KubeletVersion == next && policy.IsReady(node) && !node.Spec.Unschedulable,
			fmt.Sprint(instance.Status.Phase, " ", instance.Status.Message(), " ", node.Status.NodeInfo.KubeletVersion), err
	})
	s.leaves(t, host, instance)
}
