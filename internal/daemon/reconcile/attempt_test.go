package reconcile_test

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// pid returns the process ID of a service.
func (r *rig) pid(t *testing.T, name string) uint32 {
	t.Helper()
	s, err := r.Host().Services.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.PID
}

// another returns a manifest whose settings for kubelet and kube-proxy contain text.
func another(text string) contract.Manifest {
	m := manifest()
	m.Files[0].Content = text
	m.Files[1].Content = text + " VIP SOURCE_VIP"
	m.Files[1].HostVariables = []contract.HostVariable{{Name: "SOURCE_VIP", Fact: contract.FactSourceVIP}}
	return m
}

// expectServing checks that all services run, and that all files have the settings of the manifest another(text).
func (r *rig) expectServing(t *testing.T, text string) {
	t.Helper()
	if got := r.read(t, contract.PathKubeletConfig); got != text {
		t.Errorf("kubelet's configuration is %q, want %q", got, text)
	}
	for _, s := range manifest().Services {
		if state := r.state(t, s.Name); state != winos.ServiceRunning {
			t.Errorf("%s is %s", s.Name, state)
		}
	}
	r.expectNoLeftovers(t)
}

// expectNoLeftovers checks that no temporary file and no renamed program exists.
func (r *rig) expectNoLeftovers(t *testing.T) {
	t.Helper()
	for key := range r.Snapshot() {
		if name := strings.ToLower(key); strings.HasPrefix(name, `file c:\k\`) &&
			(strings.HasSuffix(name, ".tmp") || strings.Contains(name, ".old-")) {
			t.Errorf("%s is left", key)
		}
	}
}

// lock holds a file open, like a program that prevents the file's replacement.
func (r *rig) lock(t *testing.T, path string) {
	t.Helper()
	f, err := r.OpenFile(path, os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	r.locked = f
}

func (r *rig) unlock(t *testing.T) {
	t.Helper()
	if err := r.locked.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestADesiredStateThatCanNotBeHadIsLeftForTheOneThatHeld(t *testing.T) {
	for name, c := range map[string]struct {
		spoil, mend func(t *testing.T, r *rig)
		reason      contract.Reason
	}{
		"a service that refuses its new configuration": {
			func(_ *testing.T, r *rig) { r.picky.Store(true) },
			func(_ *testing.T, r *rig) { r.picky.Store(false) },
			contract.ReasonServiceFailed,
		},
		"a service that ends right after it has started": {
			func(_ *testing.T, r *rig) { r.touchy.Store(true) },
			func(_ *testing.T, r *rig) { r.touchy.Store(false) },
			contract.ReasonServiceFailed,
		},
		"a service that ends right after it has started, on a host whose clock is wrong": {
			func(_ *testing.T, r *rig) { r.SetClockOffset(-time.Hour); r.touchy.Store(true) },
			func(_ *testing.T, r *rig) { r.touchy.Store(false) },
			contract.ReasonServiceFailed,
		},
		"a service that refuses to stop, and can't be killed": {
			func(_ *testing.T, r *rig) { r.HangStop("kube-proxy", true); r.unkillable.Store(true) },
			func(t *testing.T, r *rig) {
				r.HangStop("kube-proxy", false)
				// An administrator ends the process, for example with Task Manager.
				if err := r.CrashService("kube-proxy"); err != nil {
					t.Fatal(err)
				}
			},
			contract.ReasonServiceFailed,
		},
		"a file that a program holds open": {
			func(t *testing.T, r *rig) { r.lock(t, contract.PathKubeProxyConfig) },
			func(t *testing.T, r *rig) { r.unlock(t) },
			contract.ReasonFileFailed,
		},
		"a program that is held open": {
			func(t *testing.T, r *rig) { r.lock(t, contract.PathKubeProxy) },
			func(t *testing.T, r *rig) { r.unlock(t) },
			contract.ReasonFileFailed,
		},
		"a full disk": {
			func(_ *testing.T, r *rig) { r.SetDiskFree(0) },
			func(_ *testing.T, r *rig) { r.SetDiskFree(1 << 30) },
			contract.ReasonDiskFull,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.write(t, contract.DirStore+`\`+digestOf("MZ proxy 2"), "MZ proxy 2")
				c.spoil(t, r)
				next := another("two")
				for i, f := range next.Files {
					if f.Path == contract.PathKubeProxy {
						next.Files[i].Digest, next.Files[i].Size = digestOf("MZ proxy 2"), int64(len("MZ proxy 2"))
					}
				}
				two := r.publish(t, next)
				r.annotate(t, contract.DesiredRevisionAnnotation, two)
				pass(4 * time.Minute)
				r.expectStatus(t, one(), c.reason)
				if status := r.annotations(t)[contract.ApplyStatusAnnotation]; name != "a full disk" &&
					!strings.Contains(status, two) {
					t.Errorf("the status does not name the revision: %q", status)
				}
				c.mend(t, r)
				pass(25 * time.Minute)
				r.expectStatus(t, two, "")
				r.expectServing(t, "two")
			})
		})
	}
}

// Each attempt restarts services, which pods notice, so attempts become rare. During an attempt, the Node shows why the
// last one failed.
func TestADesiredStateThatIsLeftAgainAndAgainIsTriedLessAndLess(t *testing.T) {
	for name, again := range map[string]func(t *testing.T, r *rig){
		"all by one daemon":             func(*testing.T, *rig) {},
		"by one daemon after the other": func(t *testing.T, r *rig) { r.stopDaemon(); r.start(t, r.api) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.touchy.Store(true)
				r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
				pass(5 * time.Second)
				began, tried, was := time.Now(), []time.Duration{0}, "{}"
				for time.Since(began) < 2*time.Hour {
					pass(500 * time.Millisecond)
					now := r.read(t, contract.PathKubeletConfig)
					if now == "two" && was != now {
						tried = append(tried, time.Since(began))
					}
					if was == "two" && was != now {
						again(t, r)
					}
					was = now
					r.expectStatus(t, one(), contract.ReasonServiceFailed)
				}
				// The attempts come after 1, 2, 4, 8, 16, 20, 20, … min, plus or minus a fifth.
				if len(tried) < 8 || len(tried) > 12 {
					t.Errorf("the attempts were at %v", tried)
				}
				for i := 2; i < 6; i++ {
					if pause, before := tried[i]-tried[i-1], tried[i-1]-tried[i-2]; pause < before {
						t.Errorf("after %s the pause was %s", before, pause)
					}
				}
			})
		})
	}
}

func TestWhileADesiredStateCanNotBePreparedNothingChanges(t *testing.T) {
	for name, spoil := range map[string]func(t *testing.T, r *rig) contract.Manifest{
		"a full disk": func(_ *testing.T, r *rig) contract.Manifest {
			r.SetDiskFree(20_000) // room for the state file only
			return another(strings.Repeat("x", 30_000))
		},
		"missing payload": func(_ *testing.T, _ *rig) contract.Manifest {
			m := another("two")
			m.Files[len(m.Files)-1].Digest = digestOf("not here")
			return m
		},
		"payload that is damaged": func(t *testing.T, r *rig) contract.Manifest {
			m := another("two")
			m.Files[len(m.Files)-1].Digest = digestOf("whole")
			r.write(t, contract.DirStore+`\`+digestOf("whole"), "damaged")
			return m
		},
		"a file whose new content can't be staged": func(_ *testing.T, r *rig) contract.Manifest {
			r.SetPathFault(contract.PathKubeProxyConfig+".tmp", winos.ErrDenied)
			return another("two")
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				before := map[string]uint32{}
				for _, s := range manifest().Services {
					before[s.Name] = r.pid(t, s.Name)
				}
				snapshot := r.Snapshot()
				r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, spoil(t, r)))
				pass(5 * time.Minute)
				a := r.annotations(t)
				if a[contract.RevisionAnnotation] != one() || a[contract.ApplyStatusAnnotation] == "" {
					t.Errorf("the Node's annotations are %v", a)
				}
				for name, pid := range before {
					if now := r.pid(t, name); now != pid {
						t.Errorf("%s was restarted", name)
					}
				}
				r.expectServing(t, "{}")
				for key, was := range snapshot {
					if now := r.Snapshot()[key]; now != was &&
						!strings.Contains(strings.ToLower(key), "wicd-state.json") &&
						!strings.Contains(key, digestOf("whole")) {
						t.Errorf("%s changed from %s to %s", key, was, now)
					}
				}
				// Meanwhile, changes by others are still repaired.
				if err := r.Host().Services.Stop(t.Context(), "kube-proxy"); err != nil {
					t.Fatal(err)
				}
				pass(2 * time.Minute)
				if state := r.state(t, "kube-proxy"); state != winos.ServiceRunning {
					t.Errorf("kube-proxy is %s", state)
				}
			})
		})
	}
}

func TestARevisionThatFailsBeforeItReplacedAnythingRestartsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		before := map[string]uint32{}
		for _, s := range manifest().Services {
			before[s.Name] = r.pid(t, s.Name)
		}
		r.lock(t, contract.PathKubeletConfig) // the first of two files
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(5 * time.Minute)
		r.expectStatus(t, one(), contract.ReasonFileFailed)
		for name, pid := range before {
			if now := r.pid(t, name); now != pid {
				t.Errorf("%s was restarted", name)
			}
		}
		r.unlock(t)
		pass(25 * time.Minute)
		r.expectStatus(t, two, "")
		r.expectServing(t, "two")
		if r.pid(t, "kubelet") == before["kubelet"] || r.pid(t, "kube-proxy") == before["kube-proxy"] {
			t.Error("a service runs with the old configuration")
		}
	})
}

func TestARefusedDesiredStateIsNotTriedAllTheTime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		bad := another("two")
		r.picky.Store(true)
		starts := r.starts.Load()
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, bad))
		pass(20 * time.Second)
		if n := r.starts.Load() - starts; n > 4 {
			t.Errorf("kube-proxy was started %d times within 20 s", n)
		}
		r.expectServing(t, "{}")
	})
}

func TestAnAdministratorWhoTakesAChangeBackIsFollowedAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.picky.Store(true)
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(5 * time.Second)
		r.picky.Store(false)
		r.annotate(t, contract.DesiredRevisionAnnotation, one())
		pass(30 * time.Second)
		r.expectStatus(t, one(), "")
		r.expectServing(t, "{}")
	})
}

func TestTwoDesiredStatesInQuickSuccession(t *testing.T) {
	for name, gap := range map[string]time.Duration{"at once": 0,
		"while the first is under way":         500 * time.Millisecond,
		"during the verification of the first": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.StopLinger("kubelet", time.Second)
				two, three := r.publish(t, another("two")), r.publish(t, another("three"))
				r.annotate(t, contract.DesiredRevisionAnnotation, two)
				pass(gap)
				r.annotate(t, contract.DesiredRevisionAnnotation, three)
				pass(time.Minute)
				r.expectStatus(t, three, "")
				r.expectServing(t, "three")
			})
		})
	}
}

func TestWhatIsRequestedByThenIsTriedWithoutRollingBackFirst(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.picky.Store(true)
		r.StopLinger("kubelet", time.Second)
		two, three := r.publish(t, another("two")), r.publish(t, another("three"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(500 * time.Millisecond) // kubelet is stopping
		r.annotate(t, contract.DesiredRevisionAnnotation, three)
		pass(200 * time.Millisecond)
		r.picky.Store(false)
		pass(time.Minute)
		r.expectStatus(t, three, "")
		r.expectServing(t, "three")
	})
}

func TestWhatFailedBeforeDoesNotKeepAChangeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.broken.Store(true)
		r.publish(t, manifest())
		r.node(t, one())
		r.overlay(t)
		r.start(t, r.api)
		pass(time.Minute)
		r.expectStatus(t, "", contract.ReasonServiceFailed)
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(10 * time.Second)
		if got := r.read(t, contract.PathKubeletConfig); got != "two" {
			t.Errorf("kubelet's configuration is %q: the change waits because of an unrelated failure",
				got)
		}
		r.broken.Store(false)
		pass(5 * time.Minute)
		r.expectStatus(t, versionOf(another("two")), "")
	})
}

func TestWhatFailedBeforeIsKnownToTheNextDaemon(t *testing.T) {
	for name, restart := range map[string]func(t *testing.T, r *rig, publish func()){
		"a daemon that ends before another revision is desired": func(t *testing.T, r *rig, publish func()) {
			r.stopDaemon()
			publish()
			r.start(t, r.api)
		},
		"a daemon that ends after that": func(t *testing.T, r *rig, publish func()) {
			publish()
			pass(20 * time.Second)
			r.stopDaemon()
			r.start(t, r.api)
		},
		"a daemon that ends after that, and whose successor words the fault differently": func(t *testing.T, r *rig, publish func()) {
			publish()
			pass(20 * time.Second)
			r.stopDaemon()
			file, err := state.Read(r.Host().Files)
			if err != nil || len(file.Faults) == 0 {
				t.Fatalf("the state file has the failures %v, %v", file.Faults, err)
			}
			for i := range file.Faults {
				file.Faults[i].Detail = "as an older daemon put it"
			}
			if err = file.Save(); err != nil {
				t.Fatal(err)
			}
			r.start(t, r.api)
		},
		"and after a reboot": func(t *testing.T, r *rig, publish func()) {
			publish()
			pass(20 * time.Second)
			r.stopDaemon()
			reboot(t, r)
			r.start(t, r.api)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.broken.Store(true)
				if err := r.Host().Services.Stop(t.Context(), "kube-proxy"); err != nil {
					t.Error(err)
				}
				pass(10 * time.Minute)
				r.expectStatus(t, one(), contract.ReasonServiceFailed)
				restart(t, r, func() { r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two"))) })
				pass(20 * time.Second)
				if got := r.read(t, contract.PathKubeletConfig); got != "two" {
					t.Errorf("kubelet's configuration is %q: the change is rolled back because of an earlier failure",
						got)
				}
				r.broken.Store(false)
				pass(10 * time.Minute)
				r.expectStatus(t, versionOf(another("two")), "")
			})
		})
	}
}

// Another program uses a service's port. So the service ends soon after each start, whatever the revision. The new
// revision must not be blamed for this.
func TestAServiceThatDidNotStayUpBeforeKeepsNoChangeBack(t *testing.T) {
	for name, restart := range map[string]func(t *testing.T, r *rig, publish func()){
		"by one daemon": func(_ *testing.T, _ *rig, publish func()) { publish() },
		"by a daemon that started before another revision was desired": func(t *testing.T, r *rig, publish func()) {
			r.stopDaemon()
			r.start(t, r.api)
			pass(20 * time.Second)
			publish()
		},
		"by a daemon that starts when another revision is desired": func(t *testing.T, r *rig, publish func()) {
			r.stopDaemon()
			publish()
			r.start(t, r.api)
		},
		"by a daemon that starts after a reboot": func(t *testing.T, r *rig, publish func()) {
			r.stopDaemon()
			reboot(t, r)
			publish()
			r.start(t, r.api)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				doesNotStayUp(t, r)
				restart(t, r, func() { r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two"))) })
				r.expectKept(t)
				r.crashing.Store(false)
				pass(10 * time.Minute)
				r.expectStatus(t, versionOf(another("two")), "")
				r.expectServing(t, "two")
			})
		})
	}
}

// An older daemon recorded a service that ended again and again in the same way as any other failure. Then the daemon
// was replaced.
func TestAServiceThatDidNotStayUpForAnOlderDaemonKeepsNoChangeBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		doesNotStayUp(t, r)
		r.stopDaemon()
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		file, err := state.Read(r.Host().Files)
		if err != nil {
			t.Error(err)
		}
		last := file.Revision
		file.Before, file.Verified, file.Revision.Name, file.Manifest = &last, false, two, another("two")
		for i := range file.Faults {
			file.Faults[i].About, file.Faults[i].CrashLooping = "", false
		}
		if err = file.Save(); err != nil {
			t.Error(err)
		}
		r.start(t, r.api)
		r.expectKept(t)
	})
}

// doesNotStayUp makes kube-proxy end right after each start, and waits until the daemon has noticed this.
func doesNotStayUp(t *testing.T, r *rig) {
	t.Helper()
	r.crashing.Store(true)
	if err := r.CrashService("kube-proxy"); err != nil {
		t.Error(err)
	}
	pass(10 * time.Minute)
}

// expectKept checks for some minutes that revision "two" stays applied and is not rolled back.
func (r *rig) expectKept(t *testing.T) {
	t.Helper()
	pass(10 * time.Second)
	for range 200 {
		pass(time.Second)
		file, err := state.Read(r.Host().Files)
		if got := r.read(t, contract.PathKubeletConfig); got != "two" || err != nil || file.Failed != nil {
			t.Errorf("kubelet's configuration is %q, and the failed revision is %+v, %v", got, file.Failed, err)
			return
		}
	}
}

func TestAServiceThatDidNotStayUpBeforeExcusesNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		doesNotStayUp(t, r)
		r.stopDaemon()
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		r.start(t, r.api)
		pass(time.Second)
		if got := r.read(t, contract.PathKubeletConfig); got != "two" {
			t.Errorf("kubelet's configuration is %q", got)
		}
		if err := r.CrashService(contract.ServiceKubelet); err != nil {
			t.Error(err)
		}
		pass(5 * time.Second)
		file, err := state.Read(r.Host().Files)
		if got := r.read(t, contract.PathKubeletConfig); got != "{}" || err != nil || file.Failed == nil {
			t.Errorf("kubelet's configuration is %q, and the failed revision is %+v, %v", got, file.Failed, err)
		}
	})
}

// If a failure existed before a revision, the same failure at that revision is excused. It is not excused if it was
// repaired in between, or if it began while a revision was on trial.
func TestOnlyWhatStillFailsExcusesTheNextRevision(t *testing.T) {
	breakProxy := func(t *testing.T, r *rig) {
		t.Helper()
		r.broken.Store(true)
		if err := r.Host().Services.Stop(t.Context(), "kube-proxy"); err != nil {
			t.Error(err)
		}
	}
	for name, before := range map[string]func(t *testing.T, r *rig){
		"it was cured by another revision": func(t *testing.T, r *rig) {
			breakProxy(t, r)
			pass(10 * time.Minute)
			r.broken.Store(false)
			three := r.publish(t, another("three"))
			r.annotate(t, contract.DesiredRevisionAnnotation, three)
			pass(15 * time.Second)
			r.expectStatus(t, three, "")
			if file, err := state.Read(r.Host().Files); err != nil || len(file.Faults) > 0 {
				t.Errorf("for a revision that holds, the state file has the failures %v, %v", file.Faults, err)
			}
		},
		"it was cured by a reboot": func(t *testing.T, r *rig) {
			breakProxy(t, r)
			pass(10 * time.Minute)
			r.stopDaemon()
			r.broken.Store(false)
			reboot(t, r)
			if err := r.Host().Services.Start(t.Context(), "kube-proxy"); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				before(t, r)
				r.stopDaemon() // the next daemon reads what this one wrote
				held := r.read(t, contract.PathKubeletConfig)
				r.picky.Store(true) // with the next revision, kube-proxy fails in the same way
				r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
				r.start(t, r.api)
				pass(40 * time.Second)
				if got := r.read(t, contract.PathKubeletConfig); got != held {
					t.Errorf("kubelet's configuration is %q: a repaired failure excuses the new one", got)
				}
			})
		})
	}
}

// A failure that begins while a revision is on trial counts as caused by this revision. It must not excuse the next
// revision.
func TestWhatCameWithARevisionOnTrialExcusesNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		// No revision can be verified with this fault.
		r.pulls.fail(contract.NewProblem(contract.ReasonPortInUse, "test"))
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(20 * time.Second)
		if got := r.read(t, contract.PathKubeletConfig); got != "two" {
			t.Fatalf("kubelet's configuration is %q", got)
		}
		r.write(t, contract.PathKubeProxyConfig, "drift")
		r.lock(t, contract.PathKubeProxyConfig)
		pass(time.Minute)
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("three")))
		pass(20 * time.Second)
		if got := r.read(t, contract.PathKubeletConfig); got != "{}" {
			t.Errorf("kubelet's configuration is %q: a failure from an unfinished trial excuses the next revision", got)
		}
		r.unlock(t)
		// The next pass starts at most 42 s after the first one. The next attempt starts at least 48 s after the first
		// pass.
		pass(25 * time.Second)
		r.expectServing(t, "{}")
	})
}

func TestADaemonThatEndsInTheMiddleGoesOnWhereItWas(t *testing.T) {
	for name, c := range map[string]struct {
		refusing bool
		away     bool
		want     string
	}{
		"and finishes":                                     {false, false, "two"},
		"and finishes without the API server":              {false, true, "two"},
		"and rolls back":                                   {true, false, "{}"},
		"and rolls back by itself, without the API server": {true, true, "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.StopLinger("kubelet", 3*time.Second)
				two := r.publish(t, another("two"))
				r.annotate(t, contract.DesiredRevisionAnnotation, two)
				pass(time.Second) // the files are replaced, and kubelet is stopping
				r.stopDaemon()
				r.picky.Store(c.refusing)
				if c.away {
					r.start(t, nil)
				} else {
					r.start(t, r.api)
				}
				pass(20 * time.Second)
				r.expectServing(t, c.want)
				if !c.away && !c.refusing {
					r.expectStatus(t, two, "")
				}
			})
		})
	}
}

func TestAfterARebootWithoutTheAPIServerTheLastDesiredStateHolds(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		c := contract.Confidential{
			Environment: map[string]string{"HTTPS_PROXY": "http://me:hunter2@proxy"},
			Mirrors: []contract.MirrorRule{{Source: "quay.io", Kind: contract.PullByTag,
				Mirrors: []string{"m.example"}}},
			Files: []contract.File{{Path: `C:\k\tls\certs\tls.key`, Content: "key"}},
		}
		two := r.want(t, another("two"), c)
		pass(30 * time.Second)
		r.expectStatus(t, two, "")
		r.stopDaemon()
		reboot(t, r)
		// A user changed the host in the meantime.
		if err := errors.Join(r.Host().Files.Remove(`C:\k\tls\certs\tls.key`),
			r.Host().Files.Remove(hostsFile("quay.io")),
			r.Host().Environment.Unset(t.Context(), "HTTPS_PROXY")); err != nil {
			t.Fatal(err)
		}
		r.start(t, nil)
		pass(time.Minute)
		r.expectServing(t, "two")
		all, err := r.Host().Environment.All(t.Context())
		if err != nil || all["HTTPS_PROXY"] != c.Environment["HTTPS_PROXY"] ||
			r.read(t, `C:\k\tls\certs\tls.key`) != "key" || r.read(t, hostsFile("quay.io")) != "m.example" {
			t.Errorf("the confidential part is not applied: %v, %v", all, err)
		}
	})
}

func reboot(t *testing.T, r *rig) {
	t.Helper()
	boot, err := r.WaitBoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err = r.Host().System.Reboot(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	<-boot.Down
	if _, err = r.WaitBoot(t.Context()); err != nil {
		t.Fatal(err)
	}
}
