package verbs_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestNeeds(t *testing.T) {
	t.Parallel()
	facts := winos.Facts{Hostname: "WIN-A"}
	for name, c := range map[string]struct {
		feature  winos.FeatureState
		hostname string
		nodeName contract.Fact
		want     []string
	}{
		"nothing":                {feature: winos.FeatureEnabled},
		"the name that it has":   {feature: winos.FeatureEnabled, hostname: "WIN-A"},
		"its name in lower case": {feature: winos.FeatureEnabled, hostname: "win-a", nodeName: contract.FactHostname},
		"its name in lower case, where the case counts": {winos.FeatureEnabled, "win-a", contract.FactFullHostname,
			[]string{"rename the host from WIN-A to win-a"}},
		"another name": {winos.FeatureEnabled, "win-b", contract.FactHostname,
			[]string{"rename the host from WIN-A to win-b"}},
		"the feature": {winos.FeatureAbsent, "", "", []string{"switch on the Windows feature Containers"}},
		"a reboot for the feature": {winos.FeaturePending, "", "",
			[]string{"reboot to finish the Windows feature Containers"}},
		"the feature and a new name": {winos.FeatureAbsent, "b", "",
			[]string{"rename the host from WIN-A to b", "switch on the Windows feature Containers"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, verbs.Preparations(facts, c.feature, c.hostname, c.nodeName)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

type featureless struct{ winos.System }

func (featureless) Feature(context.Context, string) (winos.FeatureState, error) {
	return "", winos.ErrUnsupported
}

func TestASystemWithoutFeaturesIsNotHeldUp(t *testing.T) {
	t.Parallel()
	if state, err := verbs.ContainersFeature(t.Context(), featureless{}); err != nil || state != winos.FeatureEnabled {
		t.Errorf("%s, %v", state, err)
	}
}

func TestAFeatureThatCanNotBeSwitchedOnIsNamed(t *testing.T) {
	t.Parallel()
	m, err := sim.New(sim.Options{Features: map[string]winos.FeatureState{verbs.Feature: winos.FeatureAbsent}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	m.SetFeatureFault(errors.New("source files not found"))
	_, err = verbs.Prepare(t.Context(), m.Host(), contract.PrepareRequest{})
	if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonFeatureMissing {
		t.Errorf("got %v", err)
	}
	m.SetAdmin(false)
	_, err = verbs.Prepare(t.Context(), m.Host(), contract.PrepareRequest{})
	if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonNotAdministrator {
		t.Errorf("got %v", err)
	}
}

// An image can undo a change at each boot, such as the host name. Without a limit, such a host would reboot again and
// again: a test host rebooted twelve times in two minutes.
func TestAHostThatForgetsWhatARebootWasForIsNotRebootedForEver(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		feature  winos.FeatureState
		hostname string
	}{
		"its name":                               {winos.FeatureEnabled, "win-b"},
		"its feature":                            {winos.FeatureAbsent, ""},
		"a feature that another program enabled": {winos.FeaturePending, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m, err := sim.New(sim.Options{Hostname: "WIN-A",
					Features: map[string]winos.FeatureState{verbs.Feature: c.feature}})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = m.Close() }()
				m.SetForgetful(true)
				m.SetFeature(verbs.Feature, c.feature)
				prepare := func() (contract.PrepareAnswer, error) {
					return verbs.Prepare(t.Context(), m.Host(), contract.PrepareRequest{Hostname: c.hostname})
				}
				reboots := func(until time.Duration) (count int, last error) {
					for began := time.Now(); time.Since(began) < until; <-time.After(5 * time.Minute) {
						answer, err := prepare()
						if last = err; !answer.Rebooting {
							continue
						}
						count++
						if again, err := prepare(); err != nil || !again.Rebooting {
							t.Fatalf("a second call before the reboot: %+v, %v", again, err)
						}
						synctest.Wait()
					}
					return count, last
				}
				count, err := reboots(time.Hour)
				problem, ok := contract.AsProblem(err)
				if count != 3 || !ok || problem.Reason != contract.ReasonRebootIneffective {
					t.Errorf("%d reboots within an hour, then %v", count, err)
				}
				if count, _ = reboots(24 * time.Hour); count == 0 || count > 24 {
					t.Errorf("%d reboots on the next day; a repair must be noticed, with at most one reboot per hour",
						count)
				}
				m.SetForgetful(false)
				if count, err = reboots(3 * time.Hour); count != 1 || err != nil {
					t.Errorf("after the repair: %d reboots, %v", count, err)
				}
			})
		})
	}
}

func TestAPreparationStopsTheDaemonWhichWouldOverwriteItsRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, sim.Options{})
		join(t, r)
		awaitReconciled(t, r)
		answer, err := verbs.Prepare(t.Context(), r.Host(), contract.PrepareRequest{Hostname: "win-b"})
		if err != nil || !answer.Rebooting {
			t.Fatalf("%+v, %v", answer, err)
		}
		if s := service(t, r, contract.ServiceDaemon); s.State == winos.ServiceRunning {
			t.Error("the daemon still runs, and would overwrite the state file")
		}
		stateFile, err := state.Read(r.Host().Files)
		if err != nil || stateFile.HostnameSet != "win-b" || stateFile.Reboots == nil {
			t.Errorf("recorded: %+v, %v", stateFile, err)
		}
	})
}

// renamed is a system whose image gives the host another name at each boot.
type renamed struct{ winos.System }

// Facts implements winos.System.
func (r renamed) Facts(ctx context.Context) (winos.Facts, error) {
	facts, err := r.System.Facts(ctx)
	facts.Hostname = "WIN-" + facts.BootID
	return facts, err
}

func TestAHostThatHasAnotherNameAtEachBootIsNotRebootedForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := sim.New(sim.Options{Hostname: "WIN-A"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		count := 0
		for began := time.Now(); time.Since(began) < time.Hour; <-time.After(5 * time.Minute) {
			host := m.Host()
			host.System = renamed{host.System}
			var answer contract.PrepareAnswer
			if answer, err = verbs.Prepare(t.Context(), host, contract.PrepareRequest{Hostname: "win-b"}); answer.Rebooting {
				count++
			}
			synctest.Wait()
		}
		problem, ok := contract.AsProblem(err)
		if count != 3 || !ok || problem.Reason != contract.ReasonRebootIneffective {
			t.Errorf("%d reboots within an hour, then %v", count, err)
		}
	})
}

// counted is a system with a given boot ID.
type counted struct {
	winos.System
	boot string
}

// Facts implements winos.System.
func (c counted) Facts(ctx context.Context) (winos.Facts, error) {
	facts, err := c.System.Facts(ctx)
	facts.BootID = c.boot
	return facts, err
}

// A newer daemon uses a longer ID for the same boot. It must not count the reboot twice.
func TestARebootIsCountedOnceAlthoughTheBootHasALongerName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := sim.New(sim.Options{Hostname: "WIN-A"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Close() }()
		m.SetForgetful(true)
		prepare := func(boot string) error {
			host := m.Host()
			host.System = counted{host.System, boot}
			_, err := verbs.Prepare(t.Context(), host, contract.PrepareRequest{Hostname: "win-b"})
			<-time.After(5 * time.Minute)
			return err
		}
		// Windows refuses the first reboot, so boot-a is seen twice. Two more reboots follow.
		for _, boot := range []string{"boot-a", "boot-a", "boot-b", "boot-c"} {
			if err := prepare(boot); err != nil {
				t.Fatalf("in %s: %v", boot, err)
			}
		}
		problem, ok := contract.AsProblem(prepare("boot-d"))
		if !ok || problem.Reason != contract.ReasonRebootIneffective {
			t.Errorf("after three reboots: %v", problem)
		}
	})
}
