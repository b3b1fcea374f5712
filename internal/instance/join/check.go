package join

import (
	"context"
	"fmt"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

// removeUploadLimit is the time limit for removing the daemon's program, also after an interrupted check.
const removeUploadLimit = 15 * time.Second

// Check finds out whether a host could join, and leaves the host unchanged. It takes no slot, claims no name and pins
// no key. If a join would fail, the outcome contains the first reason.
func (j *Join) Check(ctx context.Context, instance *v1alpha1.WindowsInstance,
	session *journey.Session) (outcome journey.Outcome) {
	probe := instance.DeepCopy() // a check must not record host keys
	if outcome = j.Access.Dial(ctx, probe, session); !outcome.IsDone() {
		return outcome
	}
	defer session.End()
	found, facts, outcome := j.ask(ctx, probe, session)
	_, taken := j.Claims.Other("", journey.Claimant{MachineID: found.Facts.MachineID})
	// If another instance joins the host, the uploaded program belongs to that instance.
	if !taken || !outcome.IsDone() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeUploadLimit)
		defer cancel()
		if err := session.Conn.RemoveUpload(end); err != nil && outcome.IsDone() {
			outcome = journey.Fail(fmt.Errorf("removing the uploaded daemon: %w", err))
		}
	}
	if !outcome.IsDone() {
		return outcome
	}
	instance.Status.Host = j.hostInfo(session, found.Facts)
	name := nodeName(probe, found.Facts)
	by := claimant(probe, found.Facts, facts)
	owner, clashes := j.Claims.Other(name, by)
	switch problem := unfit(probe, found.Facts, facts); {
	case clashes:
		return journey.Fail(j.duplicate(probe, name, by, owner))
	case problem != nil:
		return journey.Fail(problem)
	case len(name) > maxNodeName || !policy.IsNodeName(name):
		return journey.Fail(contract.NewProblem(contract.ReasonHostnameInvalid, "%.63q can't be a node name", name))
	case len(found.Problems) > 0:
		return journey.Fail(journey.Joined(found.Problems))
	}
	return journey.Done()
}
