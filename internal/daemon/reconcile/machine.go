package reconcile

import (
	"github.com/go-logr/logr"
)

// Phase is where the reconcile loop is with the host's revision.
type Phase string

// The phases. Which revision is on trial and which one held before is in the state file, so a
// daemon that dies in any phase begins again in the right one: see phaseOf.
const (
	// Steady: the host's revision has held, and is kept.
	Steady Phase = "Steady"
	// Applying: a revision was written into the state file and is to be brought about as a whole. That takes another
	// pass for each step that has to wait.
	Applying Phase = "Applying"
	// Verifying: all its steps were taken; it has to hold, and what was started has to stay up.
	Verifying Phase = "Verifying"
	// RollingBack: it failed, and the one that held before is brought about again.
	RollingBack Phase = "RollingBack"
	// AwaitingRestart: another daemon's program is in place; this process ends.
	AwaitingRestart Phase = "AwaitingRestart"
)

// event is what moves the loop from one phase to the next.
type event string

const (
	// none: the pass is over, and nothing has changed but the host.
	none event = ""
	// accepted: a candidate has become the host's revision, on trial, and is written down.
	accepted event = "accepted"
	// applied: all steps were taken, or only such failed as failed before; none has to wait.
	applied event = "applied"
	// failed: the revision on trial can't be had; the one that held before is the host's again.
	failed event = "failed"
	// held: everything is as the host's revision says.
	held event = "held"
	// replaced: another daemon's program was put in place.
	replaced event = "replaced"
)

// transitions is the whole table; what is not in it does not happen.
func transitions() map[Phase]map[event]Phase {
	return map[Phase]map[event]Phase{
		Steady:      {accepted: Applying, replaced: AwaitingRestart},
		Applying:    {accepted: Applying, applied: Verifying, failed: RollingBack, replaced: AwaitingRestart},
		Verifying:   {accepted: Applying, held: Steady, failed: RollingBack, replaced: AwaitingRestart},
		RollingBack: {accepted: Applying, held: Steady, replaced: AwaitingRestart},
	}
}

// machine has the phase; nothing else changes it.
type machine struct {
	phase Phase
}

// on takes an event in. One that the table does not have for this phase is a mistake of ours; the
// phase stays, which is safe: the state file says what is on trial.
func (m *machine) on(log logr.Logger, e event) {
	next, known := transitions()[m.phase][e]
	if !known {
		log.Info("an event does not belong to its phase", "phase", m.phase, "event", e)
		return
	}
	log.V(1).Info("phase", "from", m.phase, "event", e, "to", next)
	m.phase = next
}
