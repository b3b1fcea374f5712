package policy_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

func TestWhyAMachineShouldMakeRoom(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC)
	// refusal returns a refusal of a key. first and last are how long ago the host first and last refused it.
	refusal := func(key string, first, last time.Duration) *v1alpha1.KeyRefusal {
		return &v1alpha1.KeyRefusal{PublicKeyHash: key, Since: metav1.NewTime(now.Add(-first)),
			Time: metav1.NewTime(now.Add(-last))}
	}
	const limit = 5 * time.Minute
	for name, test := range map[string]struct {
		letIn   string
		refusal *v1alpha1.KeyRefusal
		edit    func(*v1alpha1.WindowsInstance)
		want    policy.ReplaceCause
		after   time.Duration
	}{
		"no key was tried":                          {},
		"the host accepted the current key":         {letIn: "new"},
		"the host refused it, and then accepted it": {letIn: "new", refusal: refusal("new", time.Hour, 0)},
		"the host accepted an earlier key":          {letIn: "old"},
		"… and the host refuses the current one": {letIn: "old", refusal: refusal("new", time.Second, 0),
			want: policy.CauseKeyStale},
		"… once":                        {letIn: "old", refusal: refusal("new", time.Hour, time.Hour)},
		"… or refused an earlier key":   {letIn: "old", refusal: refusal("other", time.Hour, 0)},
		"the host never accepted a key": {refusal: refusal("new", limit, 0), want: policy.CauseKeyRefused},
		"… for so short a time that it may be booting": {refusal: refusal("new", limit-time.Second, 0),
			after: time.Second},
		"… but it was asked once": {refusal: refusal("new", time.Hour, time.Hour)},
		"an instance that leaves": {letIn: "old", refusal: refusal("new", time.Hour, 0), edit: leavingInstance},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := onNode("m", "n")
			i.Status.PublicKeyHash, i.Status.KeyRefusal = test.letIn, test.refusal
			if test.edit != nil {
				test.edit(&i)
			}
			got, after := policy.WhyReplace(&i, "new", now, limit)
			if got != test.want || after != test.after {
				t.Errorf("cause %q after %s, want %q after %s", got, after, test.want, test.after)
			}
		})
	}
}

func TestDecideReplace(t *testing.T) {
	t.Parallel()
	type nodes = []corev1.Node
	type sets = []policy.Set
	three := nodes{readyNode("a"), readyNode("b"), readyNode("c")}
	full := sets{set("s", 3, "ma", "mb", "mc")}
	instances := func(of nodes) (all []v1alpha1.WindowsInstance) {
		for _, n := range of {
			if n.Name != "z" { // this Node belongs to no Machine
				all = append(all, onNode("m"+n.Name, n.Name))
			}
		}
		return all
	}
	withMinimum := func(s policy.Set, minimum *intstr.IntOrString) sets { s.Minimum = minimum; return sets{s} }
	ownUserData := func(s policy.Set) sets { s.UserData = "my-own"; return sets{s} }
	leavingSet := full[0]
	leavingSet.Leaving = true
	serving := func(edit func(*policy.ReplaceCandidate)) policy.ReplaceCandidate {
		c := policy.ReplaceCandidate{Name: "ma", Cause: policy.CauseKeyStale, Node: "a", Set: "s"}
		if edit != nil {
			edit(&c)
		}
		return c
	}
	failed := policy.ReplaceCandidate{Name: "mx", Cause: policy.CauseKeyRefused, Set: "s", Due: 1}
	twoFailed := failed
	twoFailed.Due = 2
	for name, test := range map[string]struct {
		candidate policy.ReplaceCandidate
		nodes     nodes
		sets      sets
		budget    *intstr.IntOrString
		action    policy.ReplaceAction
		reason    contract.Reason
	}{
		"all others serve": {serving(nil), three, full, nil, policy.ActReplace,
			contract.ReasonMachineReplaced},
		"no set creates another Machine": {serving(func(c *policy.ReplaceCandidate) { c.Set = "" }), three,
			full, nil, policy.ActWait, contract.ReasonMachineUnowned},
		"its set is gone": {serving(func(c *policy.ReplaceCandidate) { c.Set = "gone" }), three,
			full, nil, policy.ActWait, contract.ReasonMachineUnowned},
		"a set without a UID does not count": {serving(func(c *policy.ReplaceCandidate) { c.Set = "" }), three,
			sets{set("", 3, "ma")}, nil, policy.ActWait, contract.ReasonMachineUnowned},
		"its set is being deleted": {serving(nil), three, sets{leavingSet}, nil, policy.ActWait,
			contract.ReasonMachineUnowned},
		"the user wants us to keep away": {serving(func(c *policy.ReplaceCandidate) { c.Ignored = true }),
			three, full, nil, policy.ActWait, contract.ReasonMachineIgnored},
		"another API decides": {
			serving(func(c *policy.ReplaceCandidate) { c.ManagedBy = "ClusterAPI" }), three, full, nil, policy.ActWait,
			contract.ReasonMachineManagedElsewhere},
		"the user paused it": {serving(func(c *policy.ReplaceCandidate) { c.Paused = true }),
			three, full, nil, policy.ActWait, contract.ReasonPaused},
		"it did not help others": {serving(func(c *policy.ReplaceCandidate) { c.Ineffective = true }),
			three, full, nil, policy.ActWait, contract.ReasonReplacementIneffective},
		"its successor would have the same fault": {serving(func(c *policy.ReplaceCandidate) { c.Unready = true }),
			three, full, nil, policy.ActWait, contract.ReasonUserDataStale},
		"its set scales down": {serving(nil), three, sets{set("s", 2, "ma", "mb", "mc")}, nil, policy.ActWait,
			contract.ReasonOwnerDegraded},
		"its set has no replicas": {serving(nil), three, sets{set("s", 0, "ma", "mb", "mc")}, nil, policy.ActWait,
			contract.ReasonOwnerDegraded},

		"a sister is down": {serving(nil),
			nodes{readyNode("a"), readyNode("b", notReady), readyNode("c")}, full, nil, policy.ActWait,
			contract.ReasonOwnerDegraded},
		"a sister is being replaced": {serving(nil), three,
			sets{set("s", 3, "ma", "mb!", "mc", "md")}, nil, policy.ActWait, contract.ReasonOwnerDegraded},
		"a sister's successor is no node yet": {serving(nil), three[:2],
			sets{set("s", 3, "ma", "mb", "md")}, nil, policy.ActWait, contract.ReasonOwnerDegraded},
		"a node of another set is down": {serving(nil),
			append(nodes{readyNode("z", notReady)}, three...), full, nil, policy.ActWait, contract.ReasonBudgetExhausted},
		"… and the budget is two": {serving(nil),
			append(nodes{readyNode("z", notReady)}, three...), full, number(2), policy.ActReplace,
			contract.ReasonMachineReplaced},
		"the only one of its set, as the default allows": {serving(nil), three[:1], sets{set("s", 1, "ma")}, nil,
			policy.ActReplace, contract.ReasonMachineReplaced},
		"the only one, and the user wants one to serve": {serving(nil), three[:1],
			withMinimum(set("s", 1, "ma"), number(1)), nil, policy.ActWait, contract.ReasonOwnerDegraded},
		"the user's minimum is tighter than the budget": {serving(nil), three, withMinimum(full[0], number(3)),
			percent("100%"), policy.ActWait, contract.ReasonOwnerDegraded},
		"the user's minimum in per cent is rounded up": {serving(nil), three, withMinimum(full[0], percent("67%")),
			percent("100%"), policy.ActWait, contract.ReasonOwnerDegraded},
		"the user's minimum applies": {serving(nil), three, withMinimum(full[0], percent("66%")),
			percent("100%"), policy.ActReplace, contract.ReasonMachineReplaced},
		"the user's minimum is nonsense": {serving(nil), three, withMinimum(full[0], percent("half")),
			nil, policy.ActWait, contract.ReasonOwnerDegraded},
		"a budget of zero replaces nothing": {serving(nil), three, full, number(0), policy.ActWait,
			contract.ReasonOwnerDegraded},
		"a budget that is nonsense": {serving(nil), three, full, percent("many"), policy.ActWait,
			contract.ReasonOwnerDegraded},
		"it is down itself, so nothing is lost": {serving(func(c *policy.ReplaceCandidate) { c.Due = 1 }),
			nodes{readyNode("a", notReady), readyNode("b"), readyNode("c")}, full, nil, policy.ActReplace,
			contract.ReasonMachineReplaced},
		"its pods are well though it is between versions": {serving(nil),
			append(nodes{readyNode("z", notReady), readyNode("a", behind)}, three[1:]...), full, nil, policy.ActWait,
			contract.ReasonBudgetExhausted},

		"a Machine that never was a node": {failed, three[:2], sets{set("s", 3, "ma", "mb", "mx")}, nil,
			policy.ActReplace, contract.ReasonMachineReplaced},
		"… whatever is down elsewhere": {failed,
			append(nodes{readyNode("z", notReady)}, three[:2]...), sets{set("s", 3, "ma", "mb", "mx")}, nil,
			policy.ActReplace, contract.ReasonMachineReplaced},
		"… but another of its set is on its way": {failed, three[:1], sets{set("s", 3, "ma", "mx", "my")}, nil,
			policy.ActWait, contract.ReasonOwnerDegraded},
		"… but another of its set is missing": {failed, three[:1], sets{set("s", 3, "ma", "mx")}, nil,
			policy.ActWait, contract.ReasonOwnerDegraded},
		"… though the budget allows for both": {failed, three[:1], sets{set("s", 3, "ma", "mx", "my")},
			number(2), policy.ActReplace, contract.ReasonMachineReplaced},
		"… and so is another of its set": {twoFailed, three[:1], sets{set("s", 3, "ma", "mx", "my")},
			nil, policy.ActReplace, contract.ReasonMachineReplaced},
		"… whatever the user's minimum, as it serves not": {failed, three[:2],
			withMinimum(set("s", 3, "ma", "mb", "mx"), number(3)), nil, policy.ActReplace,
			contract.ReasonMachineReplaced},
		"… and a budget of zero": {failed, three[:2], sets{set("s", 3, "ma", "mb", "mx")}, number(0),
			policy.ActWait, contract.ReasonOwnerDegraded},
		"… and an administrator's cordon of another does not hold it up": {failed,
			nodes{readyNode("a"), readyNode("b", func(n *corev1.Node) { n.Spec.Unschedulable = true })},
			sets{set("s", 3, "ma", "mb", "mx")}, nil, policy.ActReplace, contract.ReasonMachineReplaced},
		"… even while that is behind": {failed, nodes{readyNode("a"), readyNode("b", behind, cordoned)},
			sets{set("s", 3, "ma", "mb", "mx")}, nil, policy.ActReplace, contract.ReasonMachineReplaced},
		"… and its successor would have user data of the user's own": {
			failed, three[:2], ownUserData(set("s", 3, "ma", "mb", "mx")), nil, policy.ActWait,
			contract.ReasonUserDataStale},
		"the only one of its set never was a node": {failed, nil, sets{set("s", 1, "mx")}, nil, policy.ActReplace,
			contract.ReasonMachineReplaced},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := policy.DecideReplace(test.candidate, policy.NewFleet(test.nodes, instances(test.nodes), test.sets, nil),
				test.budget, "")
			if got.Action != test.action || got.Reason != test.reason {
				t.Errorf("got %s %s: %s; want %s %s", got.Action, got.Reason, got.Message, test.action, test.reason)
			}
			if got.Message == "" || got.Reason.Number() == 0 {
				t.Errorf("the decision has no reason: %+v", got)
			}
		})
	}
}

func TestARefusalOfAnotherTimeIsNotHowTheHostIsNow(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC)
	for ago, stale := range map[time.Duration]bool{0: false, 20 * time.Second: false, time.Minute: true,
		-20 * time.Second: false, -time.Hour: true} { // a clock that was ahead wrote this time
		refused := metav1.NewTime(now.Add(-ago))
		i := &v1alpha1.WindowsInstance{Status: v1alpha1.WindowsInstanceStatus{KeyRefusal: &v1alpha1.KeyRefusal{Time: refused}}}
		if got := policy.IsRefusalStale(i, now); got != stale {
			t.Errorf("refused %s ago: stale is %t", ago, got)
		}
	}
}
