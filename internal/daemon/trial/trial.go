// Package trial decides what the daemon does next with the host's revision and with its own program: apply, wait,
// verify, roll back, restart or give up.
//
// The decision is the first row of a table whose condition is true. The conditions depend only on the state file and on
// the daemon's observations. The daemon repeatedly asks for the next action and executes it, until the action is to
// wait or to exit. The documentation contains the table.
package trial

import (
	"cmp"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Facts are the inputs of the next decision.
type Facts struct {
	// IsStart reports that the daemon was just started. Starts counts the starts of its program on trial. IsLate
	// reports that the deadline of this trial has passed.
	IsStart bool
	Starts  int
	IsLate  bool

	// HasHeld reports that the host's revision is verified: see state.State. HasPrevious reports that another revision
	// was verified before. Without such a revision, the host can't roll back.
	HasHeld, HasPrevious bool

	// IsReplaced reports that another program of the daemon was installed over this program. NeedsReplacing reports
	// that the revision contains another daemon.
	IsReplaced, NeedsReplacing bool
	// MayTry reports that the Node's annotation names another revision, that the payload of this revision is complete
	// or could not be fetched, and that the daemon may try the revision now. A revision that failed may be tried again
	// only after a pause.
	MayTry bool
	// If one of these is set, the revision failed. Unreadable: this daemon can't parse the revision. Ended: a service
	// that the revision started has ended. Broken: a step failed that did not fail before this revision.
	Unreadable, Ended, Broken *contract.Problem
	// IsApplied reports that all steps of the revision were taken, or failed in the same way as before this revision.
	IsApplied bool
	// IsLooked reports that the daemon has just checked the whole host. Holds reports that the host is in the desired
	// state of the revision. IsVerifying reports that services which the revision started have not run long enough yet.
	IsLooked, Holds, IsVerifying bool
}

// onTrial reports whether the host rolls back to the previous revision if this one fails.
func (f Facts) onTrial() bool { return !f.HasHeld && f.HasPrevious }

// Why returns the problem that made the revision fail, or nil.
func (f Facts) Why() *contract.Problem { return cmp.Or(f.Unreadable, f.Ended, f.Broken) }

// Action is the daemon's next action.
type Action string

// Actions. After each action except Wait and Restart, the daemon asks the table again.
const (
	Wait     Action = "wait for a change, or for the time of the next check"
	Try      Action = "begin the trial of the other revision; if its daemon does not run on this host, end the trial"
	Apply    Action = "take all steps; stop if a step fails that did not fail before"
	Repair   Action = "take the steps that are needed; if a step fails, take the other steps anyway"
	Finish   Action = "record that the revision holds"
	RollBack Action = "roll back to the previous revision, and retry this revision later"
	Replace  Action = "install the program of that daemon"
	Restart  Action = "exit with an error, so that the service manager starts the installed program"
	Restore  Action = "install the previous program again, and roll back"
	Serve    Action = "begin to reconcile"
)

// MaxStarts limits the starts of a program on trial: the start with this number restores the previous program.
const MaxStarts = 3

// Row is one row of the table.
type Row struct {
	// When describes the row's condition in words. `holds` is a function that evaluates this condition.
	When   string
	Action Action
	holds  func(f Facts) bool
}

// Rows returns the whole table. The first row whose condition is true applies. The table has three groups of rows. The
// first group applies when the daemon starts: selfupdate uses it. The reconcile loop uses the second group after it has
// checked the host, and the third group before it checks the host. Two transitions are not in the table: Program.Accept
// accepts a program on trial, and Program.Run ends such a program at its deadline.
func Rows() []Row {
	return []Row{
		{"the daemon starts, and its program on trial has ended twice", Restore,
			func(f Facts) bool { return f.IsStart && f.Starts >= MaxStarts }},
		{"the daemon starts, and the deadline of its program on trial is over", Restore,
			func(f Facts) bool { return f.IsStart && f.Starts > 0 && f.IsLate }},
		{"the daemon starts", Serve, func(f Facts) bool { return f.IsStart }},

		{"the installed program is not the running program", Restart, func(f Facts) bool { return f.IsReplaced }},
		{"the revision is on trial, and this daemon does not understand it", RollBack,
			func(f Facts) bool { return f.onTrial() && f.Unreadable != nil }},
		{"the revision is on trial, and a service that the daemon started has ended", RollBack,
			func(f Facts) bool { return f.onTrial() && f.Ended != nil }},
		{"the revision is on trial, and a step failed that did not fail before", RollBack,
			func(f Facts) bool { return f.onTrial() && f.Broken != nil }},
		{"the host matches the revision, and the services started on trial have run for two seconds", Finish,
			func(f Facts) bool { return f.Holds && !f.HasHeld && !f.IsVerifying }},
		{"the daemon has checked the whole host", Wait, func(f Facts) bool { return f.IsLooked }},

		{"the Node names another revision that may be tried now, and its payload is here or can't be fetched",
			Try, func(f Facts) bool { return f.MayTry }},
		{"this daemon does not understand the revision", Wait, func(f Facts) bool { return f.Unreadable != nil }},
		{"the revision has not held, and contains another daemon", Replace,
			func(f Facts) bool { return !f.HasHeld && f.NeedsReplacing }},
		{"the revision is on trial, and not all of its steps were taken", Apply,
			func(f Facts) bool { return f.onTrial() && !f.IsApplied }},
		{"otherwise", Repair, func(Facts) bool { return true }},
	}
}

// Next returns the first row whose condition is true.
func Next(f Facts) Row {
	rows := Rows()
	for _, row := range rows {
		if row.holds(f) {
			return row
		}
	}
	return rows[len(rows)-1]
}

// Phase returns the state of the host's revision, for the daemon's report.
func (f Facts) Phase() string {
	switch {
	case f.HasHeld:
		return "Steady"
	case !f.IsApplied && !f.Holds:
		return "Applying"
	}
	return "Verifying"
}
