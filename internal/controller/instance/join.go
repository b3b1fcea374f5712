package instance

import (
	"context"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/instance/upgrade"
	"github.com/windows-nodes/wmco/internal/policy"
)

// mayJoin decides whether a host may be joined. One that is a node needs a place in the
// rollout budget, also when an attempt failed; a host that can't be reached meanwhile keeps no
// place from others. One whose node has not been Ready for long loses nothing.
func (c *reconciliation) mayJoin(ctx context.Context) (policy.Verdict, error) {
	free := policy.Verdict{Allowed: true, Why: "no pods are disturbed"}
	if c.instance.Status.Disruption != nil || c.instance.Status.JoinedTime == nil || c.life.session.HasReplacedKey() {
		return free, nil // what is left of a join whose keys are replaced disturbs no pods
	}
	node, serves, err := c.parts.InService(ctx, c.instance)
	if err != nil || !serves {
		return free, err
	}
	return c.place.take(ctx, node, v1alpha1.DisruptionUpdate, upgrade.RevisionToTry(&c.instance.Status, node),
		func() { c.journeys.upgrade.Granted(&c.instance.Status) })
}
