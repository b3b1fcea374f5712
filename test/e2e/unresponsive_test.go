package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/openshift"
)

// unresponsive starts a scene with three hosts. One daemon is dead and can't be started. All kubelets work.
func unresponsive(t *testing.T, timeout time.Duration) (s *stage, dead *fleet.Host, others []*fleet.Host) {
	t.Helper()
	o := options(3)
	o.Arguments = []string{"--daemon-timeout", timeout.String()}
	s = own(t, o)
	hosts := s.hosts(t, 3)
	s.join(t, hosts...)
	dead = hosts[0]
	must(t, dead.Machine.DisableService(contract.ServiceDaemon))
	must(t, dead.Machine.CrashService(contract.ServiceDaemon))
	return s, dead, hosts[1:]
}

// revived waits until a host's daemon runs again.
func (s *stage) revived(t *testing.T, h *fleet.Host) {
	t.Helper()
	s.await(t, "the daemon of "+h.Name+" to run", func(ctx context.Context) (bool, string, error) {
		daemon, err := h.Machine.Host().Services.Get(ctx, contract.ServiceDaemon)
		if err != nil {
			return false, "", err
		}
		i, err := s.Instance(ctx, h)
		if err != nil {
			return false, "", err
		}
		return daemon.State == winos.ServiceRunning,
			fmt.Sprintf("the daemon is %v; %s %s: %s", daemon.State, i.Status.Phase, i.Status.Reason(), i.Status.Message()),
			nil
	})
}

// An antivirus program may delete or block a daemon. If a daemon doesn't respond, the operator must join its host
// again, exactly once. It must not contact the other hosts.
func TestADaemonThatIsDeadWhileItsNodeServesIsBroughtBack(t *testing.T) {
	t.Parallel()
	s, dead, others := unresponsive(t, 20*time.Second)
	admin, err := openshift.Client(s.Cluster.Admin())
	must(t, err)
	before := map[string]int64{}
	for _, h := range append(others, dead) {
		before[h.Name] = h.Server.Counters().Connections
	}
	old := s.node(t, dead).Annotations[contract.RevisionAnnotation]
	must(t, admin.Create(t.Context(), &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "silent"},
		Spec: configv1.ImageDigestMirrorSetSpec{
			ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "registry.invalid/silent",
				Mirrors: []configv1.ImageMirror{"mirror.invalid/silent"}}},
		}}))
	s.revived(t, dead)
	s.await(t, "all nodes to have the new revision", func(context.Context) (bool, string, error) {
		for _, h := range append(others, dead) {
			a := s.node(t, h).Annotations
			if a[contract.RevisionAnnotation] == old ||
				a[contract.RevisionAnnotation] != a[contract.DesiredRevisionAnnotation] {
				return false, fmt.Sprintf("%s is at %s and should be at %s", h.Name, a[contract.RevisionAnnotation],
					a[contract.DesiredRevisionAnnotation]), nil
			}
		}
		return true, "", nil
	})
	s.ready(t, append(others, dead)...)
	if now := dead.Server.Counters().Connections; now != before[dead.Name]+1 {
		t.Errorf("the host with the dead daemon was contacted %d times", now-before[dead.Name])
	}
	for _, h := range others {
		if now := h.Server.Counters().Connections; now != before[h.Name] {
			t.Errorf("%s was contacted %d times, want none", h.Name, now-before[h.Name])
		}
	}
	if s.node(t, dead).Spec.Unschedulable {
		t.Error("the node stayed cordoned")
	}
}

// A daemon's certificate expires. The daemon can't report this, but it has reported the expiry time before. The
// operator must join the host again, so that the daemon gets a new certificate.
func TestADaemonWhoseCertificateHasEndedIsGivenAnother(t *testing.T) {
	t.Parallel()
	s, dead, _ := unresponsive(t, time.Second)
	// The time is after the host joined again and got its current certificate.
	ended := time.Now().Add(2 * time.Second).UTC().Format(time.RFC3339)
	node := s.node(t, dead)
	before := node.DeepCopy()
	node.Annotations[contract.CertificateEndAnnotation] = ended
	must(t, s.Client.Patch(t.Context(), node, client.MergeFrom(before)))
	s.revived(t, dead)
	s.await(t, "the daemon to report when its certificate expires", func(context.Context) (bool, string, error) {
		says := s.node(t, dead).Annotations[contract.CertificateEndAnnotation]
		return says != ended, says, nil
	})
	s.ready(t, dead)
}
