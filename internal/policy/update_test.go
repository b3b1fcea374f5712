package policy_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

func readyNode() corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{contract.VersionAnnotation: "1", contract.DesiredVersionAnnotation: "1"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func TestMayDisrupt(t *testing.T) {
	t.Parallel()
	notReady := readyNode()
	notReady.Status.Conditions[0].Status = corev1.ConditionUnknown
	behind := readyNode()
	behind.Annotations[contract.DesiredVersionAnnotation] = "2"
	cordoned := readyNode()
	cordoned.Annotations[contract.CordonedAnnotation] = "true"
	ready := readyNode()
	for name, test := range map[string]struct {
		node    corev1.Node
		fleet   []corev1.Node
		budget  *intstr.IntOrString
		allowed bool
	}{
		"all is well and the default budget is one":         {ready, []corev1.Node{ready, ready}, nil, true},
		"one is not Ready, for whatever cause":              {ready, []corev1.Node{ready, notReady}, nil, false},
		"one is on its way to another version":              {ready, []corev1.Node{ready, behind}, nil, false},
		"one is cordoned by us":                             {ready, []corev1.Node{ready, cordoned}, nil, false},
		"the node itself is down already":                   {notReady, []corev1.Node{notReady, notReady}, nil, true},
		"a budget of two with one down":                     {ready, []corev1.Node{ready, notReady}, ptr.To(intstr.FromInt32(2)), true},
		"a budget of zero":                                  {ready, []corev1.Node{ready}, ptr.To(intstr.FromInt32(0)), false},
		"a percentage is rounded up":                        {ready, []corev1.Node{ready, ready, ready}, ptr.To(intstr.FromString("10%")), true},
		"a percentage that is used up":                      {ready, []corev1.Node{ready, notReady, ready}, ptr.To(intstr.FromString("10%")), false},
		"a hundred per cent":                                {ready, []corev1.Node{ready, notReady}, ptr.To(intstr.FromString("100%")), true},
		"nonsense stops everything rather than all at once": {ready, []corev1.Node{ready}, ptr.To(intstr.FromString("many")), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verdict := policy.MayDisrupt(&test.node, test.fleet, nil, test.budget)
			if verdict.Allowed != test.allowed {
				t.Errorf("allowed = %v: %s", verdict.Allowed, verdict.Why)
			}
			if verdict.Why == "" {
				t.Error("a verdict without a reason")
			}
		})
	}
}

func TestANodeThatWasLetGoAheadCountsAtOnce(t *testing.T) {
	t.Parallel()
	first, second := readyNode(), readyNode()
	first.Name, second.Name = "first", "second"
	fleet := []corev1.Node{first, second}
	if verdict := policy.MayDisrupt(&second, fleet, map[string]bool{"first": true}, nil); verdict.Allowed {
		t.Errorf("a second node was let go ahead before the first one showed it: %s", verdict.Why)
	}
}

func TestBackoffGrowsToALimit(t *testing.T) {
	t.Parallel()
	last := policy.Backoff(0, 0)
	for n := int32(1); n < 40; n++ {
		next := policy.Backoff(n, 0)
		if next < last || next > policy.Backoff(1000, 0) {
			t.Fatalf("failure %d waits %s after %s", n, next, last)
		}
		last = next
	}
	if quick, slow := policy.Backoff(3, 0), policy.Backoff(3, 0.999); slow <= quick || slow > quick*12/10 {
		t.Errorf("jitter makes %s of %s", slow, quick)
	}
}
