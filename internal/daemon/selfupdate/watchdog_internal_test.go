package selfupdate

import (
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

func TestAWatchdogThatItsDaemonHasStoppedTurnsNothingBack(t *testing.T) {
	t.Parallel()
	bringing := func(digest string) state.Revision {
		return state.Revision{Manifest: contract.Manifest{
			Files: []contract.File{{Path: contract.PathDaemon, Digest: digest}}}}
	}
	for name, c := range map[string]struct {
		own     string
		isNoted bool
		want    turn
	}{
		"it is what is to run":            {"new", true, present},
		"it is what held before":          {"old", true, before},
		"the new daemon has stopped it":   {"old", false, other},
		"it is of neither of the two":     {"older", true, other},
		"it is what is to run, not noted": {"new", false, present},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held, stateFile := bringing("old"), &state.File{}
			stateFile.Revision, stateFile.Before = bringing("new"), &held
			if c.isNoted {
				stateFile.SetService(contract.ServiceWatchdog, state.Start{})
			}
			if got := turnOf(stateFile, c.own); got != c.want {
				t.Errorf("its turn is %d, want %d", got, c.want)
			}
		})
	}
}
