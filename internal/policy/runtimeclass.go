package policy

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// RuntimeClassGrace is how long a RuntimeClass stays after the last node of its build has gone.
// Without its class a pod can't be made at all, so that nothing would ever scale a pool of nodes up
// again that an autoscaler scaled to zero.
const RuntimeClassGrace = 30 * 24 * time.Hour

// RuntimeClassInput is what decides on the RuntimeClasses for Windows.
type RuntimeClassInput struct {
	// Builds are what the cluster's Windows nodes have as contract.BuildLabel.
	Builds []string
	// Existing are the cluster's RuntimeClasses by name.
	Existing map[string]nodev1.RuntimeClass
	// Remove says that the settings want none.
	Remove bool
	Now    time.Time
}

// RuntimeClassPlan is what becomes of the RuntimeClasses for Windows.
type RuntimeClassPlan struct {
	Create, Update []*nodev1.RuntimeClass
	// Withdraw are to be deleted as soon as no pod uses them.
	Withdraw []nodev1.RuntimeClass
	// Foreign have a name of ours and another maker, and select something else. They stay as they
	// are.
	Foreign []nodev1.RuntimeClass
	// After is when time alone changes the plan, or 0.
	After time.Duration
}

// PlanRuntimeClasses decides which RuntimeClasses are made, changed and withdrawn: one for each
// build of Windows Server that the cluster has nodes of.
func PlanRuntimeClasses(in RuntimeClassInput) RuntimeClassPlan {
	var plan RuntimeClassPlan
	for _, build := range contract.WindowsBuilds() {
		desired := runtimeClass(build)
		present := slices.Contains(in.Builds, build.Label())
		existing, exists := in.Existing[desired.Name]
		switch {
		case exists && existing.Labels[contract.ManagedByLabel] != contract.OperatorServiceAccount:
			if present && !in.Remove && !selects(existing, desired) {
				plan.Foreign = append(plan.Foreign, existing)
			}
		case !exists:
			if present && !in.Remove {
				plan.Create = append(plan.Create, desired)
			}
		case in.Remove:
			plan.Withdraw = append(plan.Withdraw, existing)
		case present:
			plan.update(existing, desired, "")
		default:
			plan.unused(existing, desired, in.Now)
		}
	}
	return plan
}

// unused plans for a class of ours whose build no node has.
func (p *RuntimeClassPlan) unused(existing nodev1.RuntimeClass, desired *nodev1.RuntimeClass, now time.Time) {
	written := existing.Annotations[contract.UnusedSinceAnnotation]
	since, err := time.Parse(time.RFC3339, written)
	// A clock that was ahead would keep it for as long as it was, and one that was behind would have it
	// deleted too soon.
	if err != nil || since.After(now) || since.Before(existing.CreationTimestamp.Time) {
		since, written = now, now.UTC().Format(time.RFC3339)
	}
	left := RuntimeClassGrace - now.Sub(since)
	if left <= 0 {
		p.Withdraw = append(p.Withdraw, existing)
		return
	}
	p.update(existing, desired, written)
	if p.After == 0 || left < p.After {
		p.After = left
	}
}

// update plans that an existing class of ours becomes the desired one, unless it is.
func (p *RuntimeClassPlan) update(existing nodev1.RuntimeClass, desired *nodev1.RuntimeClass, unusedSince string) {
	next := existing.DeepCopy()
	next.Scheduling = desired.Scheduling
	if unusedSince == "" {
		delete(next.Annotations, contract.UnusedSinceAnnotation)
	} else {
		if next.Annotations == nil {
			next.Annotations = map[string]string{}
		}
		next.Annotations[contract.UnusedSinceAnnotation] = unusedSince
	}
	if !equality.Semantic.DeepEqual(&existing, next) {
		p.Update = append(p.Update, next)
	}
}

// selects reports whether pods of a class that somebody else made get what those of the desired one
// get: the same handler and nodes of the same build.
func selects(existing nodev1.RuntimeClass, desired *nodev1.RuntimeClass) bool {
	return existing.Handler == desired.Handler && existing.Scheduling != nil &&
		existing.Scheduling.NodeSelector[contract.BuildLabel] == desired.Scheduling.NodeSelector[contract.BuildLabel]
}

// runtimeClass is the class for nodes of one build. It tolerates both spellings of the taint that
// administrators give Windows nodes: a pod needs no toleration of its own.
func runtimeClass(build contract.WindowsBuild) *nodev1.RuntimeClass {
	class := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: build.RuntimeClass, Labels: map[string]string{
			contract.ManagedByLabel: contract.OperatorServiceAccount}},
		Handler: contract.RuntimeClassHandler,
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{
			corev1.LabelOSStable: string(corev1.Windows), corev1.LabelArchStable: "amd64",
			contract.BuildLabel: build.Label(),
		}},
	}
	for _, value := range []string{contract.TaintValue, strings.ToLower(contract.TaintValue)} {
		class.Scheduling.Tolerations = append(class.Scheduling.Tolerations, corev1.Toleration{
			Key: contract.TaintKey, Operator: corev1.TolerationOpEqual, Value: value,
			Effect: corev1.TaintEffectNoSchedule})
	}
	return class
}

// RuntimeClassNames are the names of the RuntimeClasses for Windows.
func RuntimeClassNames() []string {
	names := map[string]bool{}
	for _, build := range contract.WindowsBuilds() {
		names[build.RuntimeClass] = true
	}
	return slices.Sorted(maps.Keys(names))
}
