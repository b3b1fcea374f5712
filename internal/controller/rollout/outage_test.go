package rollout_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/controller/rollout"
)

// reports sets the status of a node's Ready condition. since is when the node got this status.
func reports(node *corev1.Node, status corev1.ConditionStatus, since time.Time) {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status,
		LastTransitionTime: metav1.NewTime(since)}}
}

// Whether a node counts as out of service depends on the operator's own clock, not on kubelet's clock. A node that is
// out of service need not wait for other nodes.
func TestANodeIsOutOfServiceByTheOperatorsClockOnly(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		status corev1.ConditionStatus
		wrong  time.Duration
		// lost is the time until the node counts as out of service.
		lost time.Duration
	}{
		"kubelet's clock is behind":            {corev1.ConditionFalse, -10 * time.Minute, 5 * time.Minute},
		"kubelet's clock is right":             {corev1.ConditionFalse, 0, 5 * time.Minute},
		"kubelet's clock is ahead":             {corev1.ConditionFalse, time.Hour, 5 * time.Minute},
		"the cluster has long missed it":       {corev1.ConditionUnknown, -10 * time.Minute, time.Minute},
		"the cluster has missed it for a bit":  {corev1.ConditionUnknown, -4 * time.Minute, time.Minute},
		"the cluster's clock is ahead of ours": {corev1.ConditionUnknown, time.Hour, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			away, other := asking("away"), asking("other")
			other[1].(*v1alpha1.WindowsInstance).Status.Slot = nil
			reports(away[0].(*corev1.Node), test.status, now.Add(test.wrong))
			reports(other[0].(*corev1.Node), corev1.ConditionFalse, now)
			p, clock := newPlane(t, append(away, other...)...), now
			r, err := rollout.New(rollout.Options{Cached: p, Live: p, Writer: p, Namespace: namespace,
				Now: func() time.Time { return clock }})
			if err != nil {
				t.Fatal(err)
			}
			// A node that is out of service does not wait for the other node.
			ask := func() bool {
				decide(t, r)
				verdict, _ := r.Verdict(p.instance(t, "away"))
				return verdict.Allowed
			}
			if got := ask(); got != (test.lost == 0) {
				t.Fatalf("at first, the node is out of service: %v", got)
			}
			clock = now.Add(max(0, test.lost-time.Second))
			if test.lost > 0 && ask() {
				t.Error("the node is out of service too early")
			}
			clock = now.Add(test.lost)
			if !ask() {
				t.Error("the node is not out of service when its time is over")
			}
			// The node was Ready for a moment, but the operator did not see this.
			node := &corev1.Node{}
			if err := p.Get(t.Context(), client.ObjectKey{Name: "away"}, node); err != nil {
				t.Fatal(err)
			}
			reports(node, corev1.ConditionFalse, clock.Add(test.wrong-time.Second))
			if err := p.Status().Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			if ask() {
				t.Error("the node is out of service without a new waiting time")
			}
		})
	}
}
