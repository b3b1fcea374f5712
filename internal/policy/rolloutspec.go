package policy

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Closed returns why the user's maintenance windows forbid disruptions now, or "". If a window is invalid, all windows
// count as closed, because the user may have meant to forbid disruptions now.
func Closed(spec v1alpha1.RolloutSpec, now time.Time) string {
	windows := windowsOf(spec)
	for _, w := range windows {
		if _, _, err := WindowsOpen([]Window{w}, now); err != nil {
			return fmt.Sprintf("spec.rollout.maintenanceWindows is invalid: %v", err)
		}
	}
	open, next, _ := WindowsOpen(windows, now) // no error: each window was checked above
	if open {
		return ""
	}
	return "no window of spec.rollout.maintenanceWindows is open; the next one opens at " +
		next.UTC().Format(time.RFC3339)
}

func windowsOf(spec v1alpha1.RolloutSpec) []Window {
	windows := make([]Window, len(spec.MaintenanceWindows))
	for i, w := range spec.MaintenanceWindows {
		windows[i] = Window{Start: w.Start, Duration: w.Duration.Duration, TimeZone: w.TimeZone}
	}
	return windows
}

// CheckRollout lists the invalid limits. While a limit is invalid, no node in service is disrupted.
func CheckRollout(spec v1alpha1.RolloutSpec) (problems []*contract.Problem) {
	if budget := spec.MaxUnavailable; budget != nil {
		limit, err := intstr.GetScaledValueFromIntOrPercent(budget, 100, true)
		if err != nil || limit < 0 || budget.Type == intstr.String && limit > 100 {
			problems = append(problems, contract.NewProblem(contract.ReasonRolloutSettingInvalid,
				"spec.rollout.maxUnavailable is %.50q, which is neither a number nor a percentage from 0%% to 100%%",
				budget.String()))
		}
	}
	for i, w := range windowsOf(spec) {
		if _, _, err := WindowsOpen([]Window{w}, time.Unix(0, 0)); err != nil {
			problems = append(problems, contract.NewProblem(contract.ReasonRolloutSettingInvalid,
				"spec.rollout.maintenanceWindows[%d]: %.300s", i, err.Error()))
		}
	}
	return problems
}
