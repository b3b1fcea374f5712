package instance

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// clockSkew is the maximum difference between the clocks of two operators.
const clockSkew = time.Minute

// boundTimes corrects times in the status that a wrong clock wrote. observed.Log itself checks the times that it uses.
func boundTimes(status *v1alpha1.WindowsInstanceStatus, now time.Time) {
	bound := func(t *metav1.Time, longest time.Duration) {
		if t != nil && t.Time.After(now.Add(longest+clockSkew)) {
			*t = journey.Seconds(now.Add(longest))
		}
	}
	for i := range status.Phases {
		if start := &status.Phases[i].StartTime; start.After(now.Add(clockSkew)) {
			*start = journey.Micros(now)
		}
	}
	if refusal := status.KeyRefusal; refusal != nil {
		bound(&refusal.Since, 0)
		if refusal.Time.After(now.Add(clockSkew)) {
			status.KeyRefusal = nil // don't set it to now, because it would look like a new refusal
		}
	}
	if slot := status.Slot; slot != nil {
		bound(slot.Since, 0)
	}
	if status.Activity != nil {
		bound(status.Activity.NextTime, policy.LongestDisruptBackoff)
	}
}
