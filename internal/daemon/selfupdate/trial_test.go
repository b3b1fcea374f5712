package selfupdate_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/lab/sim"
)

// The reconcile loop of this daemon hangs and ignores its context.
func TestADaemonThatHangsOnTrialEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		machine, err := sim.New(sim.Options{Hostname: "WIN-A"})
		if err != nil {
			t.Fatal(err)
		}
		file, err := state.Open(machine.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		file.Update = &state.Update{Program: "new"}
		began, over := time.Now(), make(chan struct{})
		defer close(over)
		err = selfupdate.New(machine.Host(), file, "new").Run(t.Context(), func(context.Context) error {
			<-over
			return nil
		})
		if !errors.Is(err, selfupdate.ErrLate) || time.Since(began) != 8*time.Minute {
			t.Errorf("the daemon ended after %s, %v", time.Since(began), err)
		}
		if err = machine.Close(); err != nil {
			t.Error(err)
		}
	})
}
