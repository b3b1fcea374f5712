package reconcile

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/daemon/state"
)

func phases() []Phase { return []Phase{Steady, Applying, Verifying, RollingBack, AwaitingRestart} }

func TestThePhasesFollowTheirTable(t *testing.T) {
	t.Parallel()
	for _, from := range phases() {
		for _, e := range []event{accepted, applied, failed, held, replaced} {
			want, known := transitions()[from][e]
			if !known {
				want = from
			}
			m := machine{phase: from}
			if m.on(logr.Discard(), e); m.phase != want {
				t.Errorf("%s on %s leads to %s, and not to %s", from, e, m.phase, want)
			}
		}
	}
	// What failed is never taken for what holds without going back first.
	for _, from := range phases() {
		if to, known := transitions()[from][failed]; known && to != RollingBack {
			t.Errorf("a failure while %s leads to %s", from, to)
		}
	}
	if len(transitions()[AwaitingRestart]) > 0 {
		t.Error("a process that is to end goes on")
	}
}

func TestADaemonBeginsInThePhaseThatTheStateFileTells(t *testing.T) {
	t.Parallel()
	before := &state.Revision{Name: "one"}
	for want, s := range map[Phase]state.State{
		Steady:    {Verified: true, Before: before},
		Applying:  {Before: before},
		Verifying: {},
	} {
		if got := phaseOf(s); got != want {
			t.Errorf("it begins in %s, and not in %s", got, want)
		}
	}
}

// The table in the documents is that of the code.
func TestTheDocumentsHaveTheTableOfPhases(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range phases() {
		var moves []string
		for e, to := range transitions()[from] {
			moves = append(moves, fmt.Sprintf("%s → %s", e, to))
		}
		slices.Sort(moves)
		if row := fmt.Sprintf("| %s | %s |", from, strings.Join(moves, ", ")); len(moves) > 0 &&
			!strings.Contains(string(page), row) {
			t.Errorf("docs/architecture.md lacks the row %q", row)
		}
	}
}
