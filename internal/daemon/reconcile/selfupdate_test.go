package reconcile_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	clienttesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/selfupdate"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// controller simulates the daemon's program, which runs as a service. It counts its start, and then fails in the way
// that the text in its exe says.
func (r *rig) controller(ctx context.Context, p *sim.Process) int {
	host := r.mortals(p)
	content, err := winos.ReadFile(host.Files, p.Args[0])
	if err != nil {
		return 1
	}
	stateFile, err := state.Read(host.Files)
	if err != nil {
		return 1
	}
	host = winos.WithTimeouts(host)
	program := selfupdate.New(host, stateFile, digestOf(string(content)))
	p.Running()
	err = program.Run(ctx, func(ctx context.Context) error {
		if err := stateFile.Tidy(); err != nil {
			return err
		}
		client := dynamic.Interface(r.api)
		switch exe := string(content); {
		case strings.Contains(exe, "crashes soon"):
			select {
			case <-ctx.Done():
			case <-time.After(5 * time.Second):
			}
			return errDead
		case strings.Contains(exe, "crashes"):
			return errDead
		case strings.Contains(exe, "is stuck"):
			<-ctx.Done()
			return nil
		case strings.Contains(exe, "is deaf"):
			client = nil
		}
		return reconcile.New(reconcile.Options{
			Host: host, State: stateFile, Client: client, NodeName: nodeName, Namespace: namespace, Registry: &r.pulls,
			Intervals: r.pace, Program: program,
		}).Run(ctx)
	})
	if err != nil {
		return 1
	}
	return 0
}

// mortals returns the machine from the view of a process. Each new process may be killed, until one of them was killed.
func (r *rig) mortals(p *sim.Process) winos.Host {
	m := r.mortal
	if m == nil {
		return p.Host
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return p.Host
	}
	m.kill, m.open = func() { _ = p.Machine.Kill(p.PID) }, map[*mortalWriter]bool{}
	return m.host(p.Host)
}

// installed runs the old daemon as a service with the first revision, and publishes a revision that contains a daemon
// with this exe.
func installed(t *testing.T, r *rig, exe string) (version string) {
	t.Helper()
	settled(t, r)
	r.stopDaemon()
	delays, reset := plan.DaemonRecovery()
	services := r.Host().Services
	err := services.Apply(t.Context(), winos.ServiceConfig{
		Name: contract.ServiceDaemon, Description: plan.Description(contract.ServiceDaemon),
		Command:  contract.PathDaemon + " controller",
		Recovery: delays, RecoveryReset: reset,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err = services.Start(t.Context(), contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	r.write(t, contract.DirStore+`\`+digestOf(exe), exe)
	pass(15 * time.Second)
	return r.publish(t, withDaemon(another("two"), exe))
}

// unverified is like installed, but before that, the host got another daemon with a revision that is never verified.
func unverified(t *testing.T, r *rig, exe string) (version string) {
	t.Helper()
	between := installed(t, r, newDaemon)
	if err := r.Host().Network.RemoveHNSNetwork(t.Context(), contract.HybridOverlayNetwork); err != nil {
		t.Fatal(err)
	}
	r.annotate(t, contract.DesiredRevisionAnnotation, between)
	r.write(t, contract.DirStore+`\`+digestOf(exe), exe)
	pass(5 * time.Minute)
	r.expectNoTrial(t)
	got := r.read(t, contract.PathDaemon)
	if got != newDaemon || r.annotations(t)[contract.RevisionAnnotation] == between {
		t.Fatalf("the program is %q, or the revision was reported as held", got)
	}
	return r.publish(t, withDaemon(another("three"), exe))
}

// expectOldDaemon checks that the old daemon runs with the first revision, which is verified, and that no program is on
// trial.
func (r *rig) expectOldDaemon(t *testing.T) {
	t.Helper()
	if got := r.read(t, contract.PathDaemon); got != oldDaemon {
		t.Errorf("the program is %.40q", got)
	}
	if state := r.state(t, contract.ServiceDaemon); state != winos.ServiceRunning {
		t.Errorf("the daemon is %s", state)
	}
	r.expectNoTrial(t)
	r.expectServing(t, "{}")
}

func (r *rig) expectNoTrial(t *testing.T) {
	t.Helper()
	stateFile, err := state.Read(r.Host().Files)
	if err != nil || stateFile.Update != nil {
		t.Errorf("the state file has the trial %+v, %v", stateFile.Update, err)
	}
}

func TestADaemonThatDoesNotComeUpRestoresThePreviousOne(t *testing.T) {
	for name, c := range map[string]struct {
		exe   string
		spoil func(t *testing.T, r *rig)
		after time.Duration
	}{
		"it ends at once":              {exe: "MZ crashes", after: 2 * time.Minute},
		"it ends soon after its start": {exe: "MZ crashes soon", after: 5 * time.Minute},
		"it hangs":                     {exe: "MZ is stuck", after: 10 * time.Minute},
		"it is deaf to the API server": {exe: "MZ is deaf", after: 10 * time.Minute},
		"it ends at once, and the service manager restarts nothing": {exe: "MZ crashes", after: 2 * time.Minute,
			spoil: func(t *testing.T, r *rig) {
				service, err := r.Host().Services.Get(t.Context(), contract.ServiceDaemon)
				if err != nil {
					t.Fatal(err)
				}
				service.Recovery = nil
				if err = r.Host().Services.Apply(t.Context(), service.ServiceConfig); err != nil {
					t.Fatal(err)
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				version := installed(t, r, c.exe)
				before := r.Snapshot()
				if c.spoil != nil {
					c.spoil(t, r)
				}
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				pass(500 * time.Millisecond)
				if got := r.read(t, contract.PathDaemon); got != c.exe {
					t.Fatalf("the program is %.40q: nothing was replaced", got)
				}
				exists := ""
				for range int(c.after / time.Second) {
					pass(time.Second)
					if exists = r.annotations(t)[contract.ApplyStatusAnnotation]; exists != "" {
						break
					}
				}
				r.expectStatus(t, versionOf(first()), contract.ReasonDaemonCallFailed)
				if !strings.Contains(exists, "revision "+version+": the new daemon ") ||
					!strings.HasSuffix(exists, "; the host is held at "+versionOf(first())) {
					t.Errorf("the Node reports %q", exists)
				}
				// The operator sees the report and wants the first revision again.
				r.annotate(t, contract.DesiredRevisionAnnotation, versionOf(first()))
				pass(3 * time.Minute)
				r.expectStatus(t, versionOf(first()), "")
				r.expectOldDaemon(t)
				for _, line := range sim.Diff(before, r.Snapshot(), own()...) {
					if !strings.Contains(line, contract.ServiceDaemon) || c.spoil == nil {
						t.Error(line)
					}
				}
			})
		})
	}
}

// The daemon must restore the program of the last verified revision, which is not the program that the new daemon
// replaced.
func TestADaemonThatDoesNotComeUpRestoresTheProgramOfTheRevisionThatHeld(t *testing.T) {
	for _, exe := range []string{"MZ crashes", "MZ is stuck"} {
		t.Run(exe, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				version := unverified(t, r, exe)
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				pass(500 * time.Millisecond)
				if got := r.read(t, contract.PathDaemon); got != exe {
					t.Fatalf("the program is %q: nothing was replaced", got)
				}
				exists := ""
				for n := 0; n < 600 && !strings.Contains(exists, "revision "+version+": the new daemon "); n++ {
					pass(time.Second)
					exists = r.annotations(t)[contract.ApplyStatusAnnotation]
				}
				if !strings.HasSuffix(exists, "; the host is held at "+versionOf(first())) {
					t.Errorf("the Node reports %q", exists)
				}
				r.overlay(t)
				r.annotate(t, contract.DesiredRevisionAnnotation, versionOf(first()))
				pass(3 * time.Minute)
				r.expectStatus(t, versionOf(first()), "")
				r.expectOldDaemon(t)
			})
		})
	}
}

func TestADaemonGivesNoWayWhileTheProgramOfWhatHeldIsMissing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		version := unverified(t, r, "MZ crashes")
		const dir = contract.DirStore + `\`
		if err := r.Host().Files.Remove(dir + digestOf(oldDaemon)); err != nil {
			t.Fatal(err)
		}
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(30 * time.Second)
		r.expectStatus(t, versionOf(first()), contract.ReasonPayloadIncomplete)
		if got := r.read(t, contract.PathDaemon); got != newDaemon {
			t.Errorf("the program is %q", got)
		}
		if state := r.state(t, contract.ServiceDaemon); state != winos.ServiceRunning {
			t.Errorf("the daemon is %s", state)
		}
		r.write(t, dir+digestOf(oldDaemon), oldDaemon)
		r.overlay(t)
		r.annotate(t, contract.DesiredRevisionAnnotation, versionOf(first()))
		pass(3 * time.Minute)
		r.expectStatus(t, versionOf(first()), "")
		r.expectOldDaemon(t)
	})
}

// A tool that hardens the host may disable a service while the service runs.
func TestADaemonWhoseServiceWasDisabledGivesWayAllTheSame(t *testing.T) {
	for name, exe := range map[string]string{"to one that comes up": newDaemon, "to one that does not": "MZ crashes"} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				version := installed(t, r, exe)
				if err := r.DisableService(contract.ServiceDaemon); err != nil {
					t.Fatal(err)
				}
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				if exe == newDaemon {
					pass(2 * time.Minute)
					r.expectStatus(t, version, "")
					return
				}
				pass(3*time.Minute + 20*time.Second)
				r.expectStatus(t, versionOf(first()), contract.ReasonDaemonCallFailed)
			})
		})
	}
}

func TestADaemonThatComesUpIsAccepted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		version := installed(t, r, newDaemon)
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		for range 30 {
			pass(time.Second)
			if r.annotations(t)[contract.RevisionAnnotation] == version {
				break
			}
		}
		r.expectStatus(t, version, "")
		r.expectNoTrial(t)
		pass(time.Hour)
		if got := r.read(t, contract.PathDaemon); got != newDaemon {
			t.Errorf("the program is %q", got)
		}
	})
}

// When the operator sees the revision in the report, it releases the node's slot. If the trial of the program had not
// ended before, a restart could restore the old daemon on a node that already runs pods again.
func TestARevisionIsReportedOnceTheEndOfItsTrialIsWrittenDown(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		version := installed(t, r, newDaemon)
		var reports atomic.Int64
		r.api.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patch := string(action.(clienttesting.PatchAction).GetPatch())
			if strings.Contains(patch, `"`+contract.RevisionAnnotation+`":"`+version) {
				reports.Add(1)
				r.expectNoTrial(t)
			}
			return false, nil, nil
		})
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(time.Minute)
		r.expectStatus(t, version, "")
		if reports.Load() == 0 {
			t.Error("the revision was never reported, so the test shows nothing")
		}
	})
}

func TestADaemonThatTheServiceManagerIsSlowToStartComesUpAllTheSame(t *testing.T) {
	for name, recovery := range map[string][]time.Duration{"it restarts nothing": nil,
		"it waits for minutes": {10 * time.Minute}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				version := installed(t, r, newDaemon)
				service, err := r.Host().Services.Get(t.Context(), contract.ServiceDaemon)
				if err != nil {
					t.Fatal(err)
				}
				service.Recovery = recovery
				if err = r.Host().Services.Apply(t.Context(), service.ServiceConfig); err != nil {
					t.Fatal(err)
				}
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				pass(45 * time.Second)
				r.expectStatus(t, version, "")
				r.expectNoTrial(t)
			})
		})
	}
}

func TestADaemonThatLivesIsLeftToItself(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		version := installed(t, r, newDaemon)
		if err := r.Host().Network.RemoveHNSNetwork(t.Context(), contract.HybridOverlayNetwork); err != nil {
			t.Fatal(err)
		}
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(time.Hour) // the daemon waits for the network, and reports this
		if got := r.read(t, contract.PathDaemon); got != newDaemon {
			t.Errorf("the program is %q", got)
		}
		r.expectNoTrial(t)
		r.overlay(t)
		pass(time.Minute)
		r.expectStatus(t, version, "")
	})
}

// The new daemon has not seen any service end, because it replaces the old daemon within one pass. A service that
// failed before must not count against the new release.
func TestAServiceThatDidNotStayUpBeforeKeepsNoReleaseBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const exe = "MZ newer daemon"
		version := installed(t, r, exe)
		doesNotStayUp(t, r)
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		r.expectKept(t)
		if got := r.read(t, contract.PathDaemon); got != exe {
			t.Errorf("the program is %q", got)
		}
		r.crashing.Store(false)
		pass(10 * time.Minute)
		r.expectStatus(t, version, "")
	})
}

func TestAVersionWhoseDaemonCrashesIsTriedLessAndLessOften(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.annotate(t, contract.DesiredRevisionAnnotation, installed(t, r, "MZ crashes"))
		changes, last := 0, oldDaemon
		for range 3 * 3600 {
			pass(time.Second)
			if now := r.read(t, contract.PathDaemon); now != last {
				changes, last = changes+1, now
			}
		}
		if changes < 10 || changes > 30 {
			t.Errorf("the program changed %d times within three hours", changes)
		}
	})
}

func TestATrialOutlivesReboots(t *testing.T) {
	for _, exe := range []string{"MZ crashes", "MZ is stuck"} {
		for _, at := range []time.Duration{3 * time.Second, 30 * time.Second, 55 * time.Second} {
			t.Run(fmt.Sprintf("%s, and the host reboots after %s", exe, at), func(t *testing.T) {
				inBubble(t, func(t *testing.T, r *rig) {
					r.annotate(t, contract.DesiredRevisionAnnotation, installed(t, r, exe))
					pass(at)
					reboot(t, r)
					pass(8*time.Minute + 20*time.Second)
					exists := r.annotations(t)[contract.ApplyStatusAnnotation]
					r.annotate(t, contract.DesiredRevisionAnnotation, versionOf(first()))
					pass(10 * time.Minute)
					r.expectStatus(t, versionOf(first()), "")
					r.expectOldDaemon(t)
					if !strings.HasPrefix(exists, "DaemonCallFailed: ") {
						t.Errorf("the Node reported %q", exists)
					}
				})
			})
		}
	}
}

// join simulates the operator's join over SSH, which installs the daemon's program if it is missing. The program is
// missing if the host loses power between the two renames that replace it. See docs/decisions/accepted-risks.md.
func (r *rig) join(t *testing.T, exe string) {
	t.Helper()
	if r.read(t, contract.PathDaemon) != "absent" {
		return
	}
	if r.mortal.at == 0 || !r.mortal.dead {
		t.Fatal("the host has no daemon, although no process was killed")
	}
	t.Log("the host is joined again")
	r.write(t, contract.PathDaemon, exe)
	if err := r.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	pass(time.Minute)
}

func TestADaemonThatLosesPowerAtAnyStepOfATrialThatFailsRollsBack(t *testing.T) {
	t.Parallel()
	for name, offer := range map[string]func(*testing.T, *rig, string) string{"after a version that held": installed,
		"after one that did not": unverified} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want sim.Snapshot
			var changes int64
			goBack := func(t *testing.T, r *rig, at int64) {
				t.Helper()
				version := offer(t, r, "MZ crashes")
				r.mortal = &mortal{at: at}
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				pass(3 * time.Minute)
				r.join(t, oldDaemon)
				r.annotate(t, contract.DesiredRevisionAnnotation, versionOf(first()))
				if len(r.HNSNetworks()) == 0 {
					r.overlay(t)
				}
				pass(3 * time.Minute)
				r.expectStatus(t, versionOf(first()), "")
				r.expectOldDaemon(t)
			}
			t.Run("without a crash", func(t *testing.T) {
				bubble(t, func(t *testing.T, r *rig) {
					goBack(t, r, 0)
					want, changes = r.Snapshot(), r.mortal.calls
				})
			})
			if changes < 8 {
				t.Fatalf("only %d changes were counted", changes)
			}
			t.Logf("%d changes", changes)
			for at := int64(1); at <= changes; at++ {
				t.Run(fmt.Sprintf("before change %d", at), func(t *testing.T) {
					inBubble(t, func(t *testing.T, r *rig) {
						goBack(t, r, at)
						for _, line := range sim.Diff(want, r.Snapshot(), own()...) {
							t.Error(line)
						}
					})
				})
			}
		})
	}
}

func TestADaemonThatDiesWhileItGivesWayIsFollowedByTheNewOneInTheEnd(t *testing.T) {
	t.Parallel()
	var changes int64
	giveWay := func(t *testing.T, r *rig, at int64) {
		t.Helper()
		version := installed(t, r, newDaemon)
		r.mortal = &mortal{at: at}
		// The service manager starts the program again, now as a process that can be killed.
		if err := r.CrashService(contract.ServiceDaemon); err != nil {
			t.Fatal(err)
		}
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		pass(5 * time.Minute)
		r.join(t, newDaemon)
		r.expectStatus(t, version, "")
		r.expectNoTrial(t)
		r.expectServing(t, "two")
		if got := r.read(t, contract.PathDaemon); got != newDaemon {
			t.Errorf("the program is %q", got)
		}
	}
	t.Run("without a crash", func(t *testing.T) {
		bubble(t, func(t *testing.T, r *rig) {
			giveWay(t, r, 0)
			changes = r.mortal.calls
		})
	})
	if changes < 15 {
		t.Fatalf("only %d changes were counted", changes)
	}
	t.Logf("%d changes", changes)
	for at := int64(1); at <= changes; at++ {
		t.Run(fmt.Sprintf("before change %d", at), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) { giveWay(t, r, at) })
		})
	}
}

// Older daemons ran a second service, the watchdog, while a new daemon started. If the watchdog remained, it would
// restore the older daemon.
func TestTheFirstPassRemovesTheWatchdogOfAnOlderDaemon(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		const name, path = "windows-instance-config-watchdog", `C:\k\wicd-watchdog.exe`
		settled(t, r)
		r.stopDaemon()
		r.write(t, path, oldDaemon)
		host := r.Host()
		if err := host.Services.Apply(t.Context(), winos.ServiceConfig{Name: name, Description: plan.Description(name),
			Command: path + " watchdog"}); err != nil {
			t.Fatal(err)
		}
		stateFile, err := state.Read(host.Files)
		if err != nil {
			t.Fatal(err)
		}
		stateFile.Files.Add(path)
		stateFile.SetService(name, state.Start{})
		if err = stateFile.Save(); err != nil {
			t.Fatal(err)
		}
		r.start(t, r.api)
		pass(15 * time.Second)
		if service, program := r.state(t, name), r.read(t, path); service != "absent" || program != "absent" {
			t.Errorf("the service is %s, its program %q", service, program)
		}
	})
}
