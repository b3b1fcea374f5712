package winos_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// killer ends processes, unless that is denied.
type killer struct {
	winos.Programs
	denied bool
}

// Kill is winos.Programs.
func (k *killer) Kill(ctx context.Context, pid uint32, runs func(exe string) bool) error {
	if k.denied {
		return winos.ErrDenied
	}
	return k.Programs.Kill(ctx, pid, runs)
}

func TestAServiceThatHangsIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := sim.New(sim.Options{Costs: sim.Costs{ServiceStart: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err = winos.WriteFile(m.Host().Files, `C:\x.exe`, strings.NewReader("MZ"), winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
		killer := &killer{Programs: m.Host().Programs}
		host := m.Host()
		host.Programs = killer
		services := winos.WithTimeouts(host).Services
		if err = services.Apply(t.Context(), winos.ServiceConfig{Name: "x", Command: `C:\x.exe`}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		m.HangStart("x", true)
		if err = services.Start(t.Context(), "x"); !errors.Is(err, winos.ErrStartFailed) ||
			time.Since(began) != 2*time.Minute {
			t.Errorf("start: %v after %s", err, time.Since(began))
		}
		m.HangStart("x", false)
		if err = m.CrashService("x"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err = services.Start(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		m.HangStop("x", true)
		killer.denied = true
		began = time.Now()
		if err = services.Stop(t.Context(), "x"); !errors.Is(err, winos.ErrInUse) || time.Since(began) != time.Minute {
			t.Errorf("stop: %v after %s", err, time.Since(began))
		}
		killer.denied = false
		if err = services.Stop(t.Context(), "x"); err != nil {
			t.Errorf("stop with a kill: %v", err)
		}
		if s, err := services.Get(t.Context(), "x"); err != nil || s.State != winos.ServiceStopped {
			t.Errorf("it is %s, %v", s.State, err)
		}
	})
}
