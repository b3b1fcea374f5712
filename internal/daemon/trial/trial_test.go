package trial_test

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/trial"
)

func TestNext(t *testing.T) {
	t.Parallel()
	why := contract.NewProblem(contract.ReasonServiceFailed, "it ended")
	type facts = trial.Facts
	for name, c := range map[string]struct {
		facts facts
		want  trial.Action
	}{
		"a program that is not on trial starts":  {facts{IsStart: true}, trial.Serve},
		"a program on trial starts":              {facts{IsStart: true, Starts: 1}, trial.Serve},
		"a program on trial starts again":        {facts{IsStart: true, Starts: 2}, trial.Serve},
		"a program on trial starts a third time": {facts{IsStart: true, Starts: 3}, trial.Restore},
		"a program on trial starts after its deadline": {
			facts{IsStart: true, Starts: 2, IsLate: true},
			trial.Restore,
		},
		"a program was never started": {facts{IsStart: true, IsLate: true}, trial.Serve},

		"another program is in place": {facts{IsReplaced: true, HasPrevious: true, Broken: why}, trial.Restart},

		"a service of a revision on trial ended": {facts{HasPrevious: true, Ended: why}, trial.RollBack},
		"a step of a revision on trial failed": {
			facts{HasPrevious: true, Broken: why, IsLooked: true},
			trial.RollBack,
		},
		"a revision on trial can't be read": {
			facts{HasPrevious: true, Unreadable: why},
			trial.RollBack,
		},
		"a revision on trial failed, and another is named": {
			facts{HasPrevious: true, Ended: why, MayTry: true},
			trial.RollBack,
		},
		"a step of the first revision failed": {facts{Broken: why, IsLooked: true}, trial.Wait},
		"the first revision can't be read":    {facts{Unreadable: why}, trial.Wait},
		"a step of a revision that has held failed": {
			facts{HasHeld: true, HasPrevious: true, Broken: why, IsLooked: true},
			trial.Wait,
		},

		"another revision is named":                               {facts{HasHeld: true, MayTry: true}, trial.Try},
		"another revision is named while one is on trial":         {facts{HasPrevious: true, MayTry: true}, trial.Try},
		"another revision is named while the first can't be read": {facts{Unreadable: why, MayTry: true}, trial.Try},
		"another revision is named during a look at the host": {
			facts{HasHeld: true, MayTry: true, IsLooked: true},
			trial.Wait,
		},

		"a revision on trial brings another daemon": {
			facts{HasPrevious: true, NeedsReplacing: true},
			trial.Replace,
		},
		"the first revision brings another daemon": {facts{NeedsReplacing: true}, trial.Replace},
		"a revision that has held had another daemon": {
			facts{HasHeld: true, NeedsReplacing: true},
			trial.Repair,
		},
		"a revision is on trial":                    {facts{HasPrevious: true}, trial.Apply},
		"steps of a revision on trial have to wait": {facts{HasPrevious: true, IsLooked: true}, trial.Wait},
		"a revision on trial is applied": {
			facts{HasPrevious: true, IsApplied: true},
			trial.Repair,
		},
		"a revision on trial is being verified": {
			facts{HasPrevious: true, IsApplied: true, IsLooked: true, Holds: true, IsVerifying: true},
			trial.Wait,
		},
		"a revision on trial holds": {
			facts{HasPrevious: true, IsApplied: true, IsLooked: true, Holds: true},
			trial.Finish,
		},
		"the first revision":       {facts{}, trial.Repair},
		"the first revision holds": {facts{IsLooked: true, Holds: true}, trial.Finish},
		"a revision that has held holds": {
			facts{HasHeld: true, IsLooked: true, Holds: true},
			trial.Wait,
		},
		"a revision that has held is to be looked at again": {facts{HasHeld: true}, trial.Repair},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := trial.Next(c.facts); got.Action != c.want {
				t.Errorf("next: %s, since %s; want: %s", got.Action, got.When, c.want)
			}
		})
	}
}

// If the process must exit, no other step may follow. A failed revision must never be recorded as verified.
func TestNextWhateverElseIsKnown(t *testing.T) {
	t.Parallel()
	why := contract.NewProblem(contract.ReasonServiceFailed, "it ended")
	for bits := range 1 << 11 {
		is := func(n int) bool { return bits>>n&1 == 1 }
		f := trial.Facts{HasHeld: is(0), HasPrevious: is(1), IsReplaced: is(2), NeedsReplacing: is(3), MayTry: is(4),
			IsApplied: is(6), IsLooked: is(7) || is(8), Holds: is(8), IsVerifying: is(9)}
		if is(5) {
			f.Unreadable = why
		}
		if is(10) {
			f.Ended = why
		}
		got := trial.Next(f).Action
		switch {
		case f.IsReplaced != (got == trial.Restart):
			t.Errorf("%+v: %s", f, got)
		case got == trial.Finish && (!f.Holds || f.HasHeld || f.HasPrevious && f.Why() != nil):
			t.Errorf("%+v: %s", f, got)
		case got == trial.RollBack && (f.HasHeld || !f.HasPrevious || f.Why() == nil):
			t.Errorf("%+v: %s", f, got)
		case f.IsLooked && (got == trial.Apply || got == trial.Repair || got == trial.Try):
			t.Errorf("%+v: %s: the process does not end", f, got)
		}
	}
}

func TestThePhaseOfARevision(t *testing.T) {
	t.Parallel()
	for want, all := range map[string][]trial.Facts{
		"Steady":    {{HasHeld: true}, {HasHeld: true, HasPrevious: true, IsApplied: true}},
		"Applying":  {{}, {HasPrevious: true}, {IsLooked: true}},
		"Verifying": {{HasPrevious: true, IsApplied: true}, {IsLooked: true, Holds: true}},
	} {
		for _, f := range all {
			if got := f.Phase(); got != want {
				t.Errorf("%+v: %s, want %s", f, got, want)
			}
		}
	}
}
