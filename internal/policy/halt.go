package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Halted returns why no more nodes may change to a revision, or "" if nodes may change to it. A revision is halted if
// at least spec.rollout.failureThreshold nodes failed at it, and the user hasn't resumed the rollout. The statuses of
// instances contain the latest failures. The status of config contains failures of deleted instances.
func Halted(revision string, config *v1alpha1.WindowsMachineConfig, instances []v1alpha1.WindowsInstance) string {
	if revision == "" || config.Annotations[contract.ResumeRolloutAnnotation] == revision {
		return ""
	}
	var failed []string
	for _, f := range config.Status.Rollout.Failures {
		if f.Revision == revision {
			failed = append(failed, f.Node)
		}
	}
	for i := range instances {
		if instances[i].Status.FailedRevision == revision {
			failed = append(failed, instances[i].Status.NodeName)
		}
	}
	slices.Sort(failed)
	failed = slices.Compact(failed)
	threshold := max(1, int(config.Spec.Rollout.FailureThreshold))
	if len(failed) < threshold {
		return ""
	}
	return fmt.Sprintf("%s failed at revision %s (%s), and spec.rollout.failureThreshold is %d",
		contract.Count(len(failed), "node"), revision,
		strings.Join(failed[:min(len(failed), maxFailedNamed)], ", "), threshold)
}

const maxFailedNamed = 3
