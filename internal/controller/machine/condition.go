package machine

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/internal/policy"
)

// finding is the reason why a Machine is not a node, or is not replaced.
type finding struct {
	machine inventory.Machine
	problem *contract.Problem
	// lasts is how long the problem must last until the status of the settings reports it. If the field `quiet` is
	// true, the event waits until then. Otherwise, the event reports the problem at once.
	lasts time.Duration
	quiet bool
}

// conditions contains the reason of each Machine's finding, and when this operator first saw the finding.
type conditions struct{ byUID map[types.UID]condition }

type condition struct {
	reason     contract.Reason
	since      time.Time
	isReported bool
}

// update replaces the conditions. It calls the function `report` once for each Machine and reason. `lasting` contains
// the problems for the status of the settings. `again` is the time until another problem has lasted long enough, or 0.
func (c *conditions) update(findings []finding, now time.Time,
	report func(finding)) (lasting []*contract.Problem, again time.Duration) {
	next := map[types.UID]condition{}
	for _, f := range findings {
		one := c.byUID[f.machine.UID]
		if one.reason != f.problem.Reason {
			one = condition{reason: f.problem.Reason, since: now}
		}
		left := f.lasts - now.Sub(one.since)
		if left <= 0 {
			lasting = append(lasting, f.problem)
		}
		if !one.isReported && (left <= 0 || !f.quiet) {
			report(f)
			one.isReported = true
		}
		again = policy.Soonest(again, max(0, left))
		next[f.machine.UID] = one
	}
	c.byUID = next
	return lasting, again
}
