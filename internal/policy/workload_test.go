package policy_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const noMatch = `rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/nginx:1": ` +
	`no match for platform in manifest: not found`

func waitingPod(spec corev1.PodSpec, message string) *corev1.Pod {
	return &corev1.Pod{Spec: spec, Status: corev1.PodStatus{Phase: corev1.PodPending,
		ContainerStatuses: []corev1.ContainerStatus{{Image: "nginx:1", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: message}}}}}}
}

func selecting(labels map[string]string) corev1.PodSpec { return corev1.PodSpec{NodeSelector: labels} }

func TestA73_APodThatCantRunOnItsWindowsNodeIsRecognised(t *testing.T) {
	t.Parallel()
	windows, linux := map[string]string{corev1.LabelOSStable: "windows"}, map[string]string{corev1.LabelOSStable: "linux"}
	ended := func(pod *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
		pod.Status.Phase = phase
		return pod
	}
	ends := func(state corev1.ContainerState) *corev1.Pod {
		pod := waitingPod(selecting(windows), "")
		pod.Status.ContainerStatuses[0].State = state
		pod.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "StartError",
			Message: "The container operating system does not match the host operating system."}
		return pod
	}
	terms := func(values ...string) corev1.PodSpec {
		selector := &corev1.NodeSelector{}
		for _, value := range values {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelOSStable,
					Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}})
		}
		return corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: selector}}}
	}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want contract.Reason
	}{
		"says Linux": {waitingPod(corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Linux}}, ""), contract.ReasonLinuxPodPlaced},
		"was refused by kubelet": {ended(waitingPod(corev1.PodSpec{OS: &corev1.PodOS{Name: corev1.Linux}}, ""),
			corev1.PodFailed), contract.ReasonLinuxPodPlaced},
		"selects Linux":             {waitingPod(selecting(linux), ""), contract.ReasonLinuxPodPlaced},
		"requires Linux":            {waitingPod(terms("linux", "linux"), ""), contract.ReasonLinuxPodPlaced},
		"requires either":           {waitingPod(terms("linux", "windows"), ""), ""},
		"says nothing and runs":     {waitingPod(corev1.PodSpec{}, ""), ""},
		"says nothing, no image":    {waitingPod(corev1.PodSpec{}, noMatch), contract.ReasonLinuxPodPlaced},
		"says Windows, no image":    {waitingPod(selecting(windows), noMatch), contract.ReasonImageNotForNode},
		"selects a build, no image": {waitingPod(selecting(map[string]string{contract.BuildLabel: "x"}), noMatch), contract.ReasonImageNotForNode},
		"another trouble":           {waitingPod(selecting(windows), "unauthorized"), ""},
		"has ended":                 {ended(waitingPod(selecting(linux), noMatch), corev1.PodSucceeded), ""},
		"failed otherwise":          {ended(waitingPod(selecting(windows), noMatch), corev1.PodFailed), ""},
		"has the wrong build": {waitingPod(selecting(windows), "hcs::CreateComputeSystem: The container operating system "+
			"does not match the host operating system."), contract.ReasonImageNotForNode},
		"is started again and again": {ends(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}),
			contract.ReasonImageNotForNode},
		"is being started again":         {ends(corev1.ContainerState{}), contract.ReasonImageNotForNode},
		"runs with another image by now": {ends(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}), ""},
	} {
		if got, why := policy.MisplacedPod(c.pod); got != c.want || (why == "") != (c.want == "") {
			t.Errorf("%s: %q, %s", name, got, why)
		}
	}
}

func TestA73_APodForWindowsThatNoNodeWillTakeIsRecognised(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	node := func(build string, taints ...corev1.Taint) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{corev1.LabelOSStable: "windows",
			contract.BuildLabel: build}}, Spec: corev1.NodeSpec{Taints: taints},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}}
	}
	ours := corev1.Taint{Key: contract.TaintKey, Value: contract.TaintValue, Effect: corev1.TaintEffectNoSchedule}
	cordon := corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}
	nodes := []corev1.Node{node("10.0.20348", ours, cordon), node("10.0.17763", ours)}
	pod := func(edit func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{Spec: selecting(map[string]string{corev1.LabelOSStable: "windows"})}
		p.Spec.Tolerations = []corev1.Toleration{{Key: contract.TaintKey, Operator: corev1.TolerationOpExists}}
		p.Spec.Containers = []corev1.Container{{}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(now.Add(-policy.UnplaceableAfter))}}
		if edit != nil {
			edit(p)
		}
		return p
	}
	for name, c := range map[string]struct {
		pod   *corev1.Pod
		nodes []corev1.Node
		want  string
	}{
		"may go to a node that is cordoned": {pod: pod(nil), nodes: nodes[:1]},
		"there is no node":                  {pod: pod(nil), want: "no Windows node"},
		"does not tolerate the taint": {pod: pod(func(p *corev1.Pod) { p.Spec.Tolerations = nil }), nodes: nodes,
			want: "of 2 Windows nodes none can take it: 2 with the taint os=Windows:NoSchedule, which it does not tolerate"},
		"selects a build that no node has": {pod: pod(func(p *corev1.Pod) {
			p.Spec.NodeSelector[contract.BuildLabel] = "10.0.26100"
		}), nodes: nodes, want: "2 not selected"},
		"requests more than a node has": {pod: pod(func(p *corev1.Pod) {
			p.Spec.NodeSelector[contract.BuildLabel] = "10.0.17763"
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}
		}), nodes: nodes, want: "1 not selected by its node selector, RuntimeClass or affinity; 1 with less than it requests"},
		"requests what nodes don't have": {pod: pod(func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"example.com/gpu": resource.MustParse("1")}
		}), nodes: nodes, want: "2 with less"},
		"has not waited for long": {pod: pod(func(p *corev1.Pod) {
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-time.Minute))
		})},
		"is for Linux":         {pod: pod(func(p *corev1.Pod) { p.Spec.NodeSelector = nil })},
		"is held by a gate":    {pod: pod(func(p *corev1.Pod) { p.Status.Conditions[0].Reason = "SchedulingGated" })},
		"was placed meanwhile": {pod: pod(func(p *corev1.Pod) { p.Spec.NodeName = "a" })},
		"is being deleted":     {pod: pod(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} })},
	} {
		got, why := policy.UnplaceablePod(c.pod, c.nodes, now, policy.UnplaceableAfter)
		if (got == contract.ReasonPodUnplaceable) != (c.want != "") || !strings.Contains(why, c.want) {
			t.Errorf("%s: %q, %s", name, got, why)
		}
	}
}

func TestADrainWaitsForThePodsThatWereToldInTime(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	deadline := began.Add(10 * time.Minute)
	for name, c := range map[string]struct {
		made, told, grace, now time.Duration
		want                   bool
	}{
		"in the middle":                  {grace: time.Minute, now: 59 * time.Second, want: true},
		"over":                           {grace: time.Minute, now: time.Minute},
		"after the deadline":             {told: 9 * time.Minute, grace: 5 * time.Minute, now: 13 * time.Minute, want: true},
		"after the deadline, and over":   {told: 9 * time.Minute, grace: 5 * time.Minute, now: 14 * time.Minute},
		"held by a budget until then":    {made: -time.Hour, told: 11 * time.Minute, grace: time.Minute, now: 11 * time.Minute, want: true},
		"back on the node, told in time": {made: time.Minute, told: 9 * time.Minute, grace: 5 * time.Minute, now: 13 * time.Minute, want: true},
		"back on the node, told after":   {made: time.Minute, told: 11 * time.Minute, grace: time.Minute, now: 11 * time.Minute},
		"a year, in the hour":            {grace: 8760 * time.Hour, now: 69 * time.Minute, want: true},
		"a year, after the hour":         {grace: 8760 * time.Hour, now: 70 * time.Minute},
	} {
		seconds := int64(c.grace.Seconds())
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{DeletionGracePeriodSeconds: &seconds,
			CreationTimestamp: metav1.NewTime(began.Add(c.made)),
			DeletionTimestamp: &metav1.Time{Time: began.Add(c.told + c.grace)}}}
		if got := policy.HoldsDrain(pod, began, deadline, began.Add(c.now)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// The creator of a pod can write any owner, so the operator accepts only an owner with a valid name.
func TestA55_OnlyADaemonSetThatThereMayBeIsAPodsOwner(t *testing.T) {
	t.Parallel()
	owner := func(edit func(*metav1.OwnerReference)) []metav1.OwnerReference {
		o := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "logs.agent-1", Controller: new(true)}
		edit(&o)
		return []metav1.OwnerReference{o}
	}
	for name, c := range map[string]struct {
		owners []metav1.OwnerReference
		phase  corev1.PodPhase
		want   bool
	}{
		"a DaemonSet":             {owners: owner(func(*metav1.OwnerReference) {}), want: true},
		"nobody":                  {},
		"a ReplicaSet":            {owners: owner(func(o *metav1.OwnerReference) { o.Kind = "ReplicaSet" })},
		"one of another API":      {owners: owner(func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1" })},
		"one that only keeps it":  {owners: owner(func(o *metav1.OwnerReference) { o.Controller = nil })},
		"one of a pod that ended": {owners: owner(func(*metav1.OwnerReference) {}), phase: corev1.PodFailed},
		"a part of one":           {owners: owner(func(o *metav1.OwnerReference) { o.Name = "logs/status" })},
		"a folder":                {owners: owner(func(o *metav1.OwnerReference) { o.Name = ".." })},
		"one without a name":      {owners: owner(func(o *metav1.OwnerReference) { o.Name = "" })},
		"one with a long name":    {owners: owner(func(o *metav1.OwnerReference) { o.Name = strings.Repeat("a", 254) })},
	} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: c.owners},
			Status: corev1.PodStatus{Phase: c.phase}}
		if got := policy.DaemonSetOf(pod); (got != nil) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
