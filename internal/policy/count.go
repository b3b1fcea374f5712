package policy

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Count adds an instance to the counts. A failing instance that is Ready or being deleted counts in both categories.
func Count(counts *v1alpha1.InstanceCounts, i *v1alpha1.WindowsInstance) {
	failing := i.Status.Failures > 0
	counts.Total++
	switch {
	case !i.DeletionTimestamp.IsZero():
		counts.Leaving++
	case meta.IsStatusConditionTrue(i.Status.Conditions, v1alpha1.ConditionReady):
		counts.Ready++
	case !failing:
		counts.Joining++
	}
	if failing {
		counts.Failing++
	}
}
