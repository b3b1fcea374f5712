package reconcile_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// silentManager is a service manager that may refuse to answer.
type silentManager struct {
	winos.Services
	silent *atomic.Bool
}

// Get implements winos.Services.
func (s silentManager) Get(ctx context.Context, name string) (winos.Service, error) {
	if s.silent.Load() {
		return winos.Service{}, winos.ErrDenied
	}
	return s.Services.Get(ctx, name)
}

// Steps that have to wait for something belong to the trial even if they are taken in a later pass. Here kube-proxy is
// started last, and refuses its settings.
func TestWhatFailsInALaterPassOfATrialIsRolledBack(t *testing.T) {
	const grown = 15 * time.Second // the random pause before the next pass may be up to 48 s
	for name, c := range map[string]struct {
		delay, goOn func(t *testing.T, r *rig)
		// away makes the API server unreachable, so the daemon must notice the change by itself.
		away bool
	}{
		"HNS does not answer in the first": {
			delay: func(_ *testing.T, r *rig) { r.hns.hang() },
			goOn:  func(_ *testing.T, r *rig) { r.hns.goOn() },
		},
		"HNS does not answer in the first, and another daemon makes the next": {
			delay: func(_ *testing.T, r *rig) { r.hns.hang() },
			goOn:  func(t *testing.T, r *rig) { r.stopDaemon(); r.start(t, r.api); pass(40 * time.Second); r.hns.goOn() },
		},
		"the host reboots, and the overlay network is late": {
			delay: func(_ *testing.T, r *rig) { r.hns.hang() },
			goOn: func(t *testing.T, r *rig) {
				r.stopDaemon()
				r.hns.goOn()
				r.SetHNSFault(winos.ErrNotFound)
				reboot(t, r)
				r.start(t, nil)
				pass(time.Minute)
				r.SetHNSFault(nil)
			},
			away: true,
		},
		"the service manager does not answer in the first": {
			delay: func(_ *testing.T, r *rig) { r.silent.Store(true) },
			goOn:  func(_ *testing.T, r *rig) { r.silent.Store(false); pass(grown) },
		},
		"the host has no address in the first": {
			delay: func(_ *testing.T, r *rig) { r.SetNoRoute(true) },
			goOn:  func(_ *testing.T, r *rig) { r.SetNoRoute(false); pass(grown) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.picky.Store(true)
				c.delay(t, r)
				m := another("two")
				m.Services[3].Command += " --bind=NODE_IP"
				m.Services[3].HostVariables = []contract.HostVariable{{Name: "NODE_IP", Fact: contract.FactNodeIP}}
				two := r.publish(t, m)
				r.annotate(t, contract.DesiredRevisionAnnotation, two)
				pass(40 * time.Second)
				c.goOn(t, r)
				pass(45 * time.Second)
				r.expectServing(t, "{}")
				if c.away {
					return
				}
				r.expectStatus(t, one(), contract.ReasonServiceFailed)
				r.picky.Store(false)
				pass(5 * time.Minute)
				r.expectStatus(t, two, "")
				r.expectServing(t, "two")
			})
		})
	}
}

// If a later pass of the trial starts a service, and the service ends right away, the trial must fail as well.
func TestAServiceThatEndsRightAfterALateStartIsRolledBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.touchy.Store(true)
		r.hns.hang()
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(40 * time.Second)
		r.hns.goOn()
		pass(45 * time.Second)
		r.expectStatus(t, one(), contract.ReasonServiceFailed)
		r.expectServing(t, "{}")
	})
}

// A trial may wait for hours. If an administrator restarts a service during this time, the trial must not fail.
func TestAServiceThatHasStayedUpInATrialMayBeRestarted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.hns.hang()
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(5 * time.Minute)
		if err := r.CrashService("kubelet"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		r.expectStatus(t, one(), contract.ReasonNetworkPending)
		r.hns.goOn()
		pass(time.Minute)
		r.expectStatus(t, two, "")
		r.expectServing(t, "two")
	})
}

// If a service ends again and again, the trial fails, no matter how long the service runs each time. If a service is
// restarted only now and then, the trial does not fail.
func TestAServiceThatEndsAgainAndAgainInATrialThatWaitsIsRolledBack(t *testing.T) {
	for name, life := range map[string]time.Duration{"after a while": 40 * time.Second, "seldom": 3 * time.Minute,
		"now and then": 65 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.hns.hang()
				r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
				pass(time.Minute)
				if got := r.read(t, contract.PathKubeletConfig); got != "two" {
					t.Fatalf("kubelet's configuration is %q", got)
				}
				for range 3 {
					pass(life)
					if err := r.CrashService("kubelet"); err != nil {
						t.Fatal(err)
					}
				}
				pass(30 * time.Second)
				reason, config := contract.ReasonServiceFailed, "{}"
				if life > time.Hour {
					reason, config = contract.ReasonNetworkPending, "two"
				}
				r.expectStatus(t, one(), reason)
				if got := r.read(t, contract.PathKubeletConfig); got != config {
					t.Errorf("kubelet's configuration is %q", got)
				}
				r.hns.goOn()
			})
		})
	}
}

// A daemon starts in the middle of a trial, and starts only the services that are down. If another service ends later,
// this is not a failure of the trial.
func TestTheEndOfAServiceThatATrialLeftAloneIsNoFaultOfIt(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.hns.hang()
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(40 * time.Second)
		r.stopDaemon()
		if err := r.Host().Services.Stop(t.Context(), "kubelet"); err != nil {
			t.Fatal(err)
		}
		r.start(t, r.api)
		pass(time.Minute)
		if err := r.CrashService("containerd"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		if got := r.read(t, contract.PathKubeletConfig); got != "two" {
			t.Errorf("kubelet's configuration is %q", got)
		}
		r.hns.goOn()
	})
}

// The first pass of a trial ends at a step that already failed before the trial. The remaining steps still belong to
// the trial.
func TestWhatFailsBesideAServiceThatFailedBeforeIsRolledBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.FailService("hybrid-overlay-node", true)
		if err := r.CrashService("hybrid-overlay-node"); err != nil {
			t.Fatal(err)
		}
		pass(time.Minute)
		r.expectStatus(t, one(), contract.ReasonServiceFailed)
		m := another("two")
		m.Services = append(m.Services, contract.Service{Name: "zz-exporter", Command: `C:\k\none.exe`, Priority: 4})
		two := r.publish(t, m)
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(30 * time.Second)
		if got := r.read(t, contract.PathKubeletConfig); got != "{}" {
			t.Errorf("kubelet's configuration is %q, although a service of the revision does not start", got)
		}
	})
}

func TestARevisionIsNotGivenUpForWhatItWaitsFor(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.hns.hang()
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(20 * time.Minute)
		if got := r.read(t, contract.PathKubeletConfig); got != "two" {
			t.Errorf("kubelet's configuration is %q", got)
		}
		r.expectStatus(t, one(), contract.ReasonNetworkPending)
		r.hns.goOn()
		pass(time.Minute)
		r.expectStatus(t, two, "")
		r.expectServing(t, "two")
	})
}

// If the daemon can't repair a change by someone else, it must not roll back a verified revision.
func TestARevisionThatHoldsIsNotGivenUpForDrift(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(time.Minute)
		r.expectStatus(t, two, "")
		r.picky.Store(true)
		if err := r.CrashService("kube-proxy"); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			pass(2 * time.Minute)
			r.expectStatus(t, two, contract.ReasonServiceFailed)
			if got := r.read(t, contract.PathKubeletConfig); got != "two" {
				t.Errorf("kubelet's configuration is %q", got)
			}
			r.stopDaemon()
			r.start(t, r.api)
		}
		r.picky.Store(false)
		pass(5 * time.Minute)
		r.expectStatus(t, two, "")
	})
}

// While a trial waits, updates of the Node must not cause passes.
func TestATrialThatWaitsIsNotTriedWithEachHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.hns.hang()
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(5 * time.Minute)
		r.passes.Store(0)
		for i := range 200 {
			r.annotate(t, "test/heartbeat", time.Duration(i).String())
			pass(100 * time.Millisecond)
		}
		if n := r.passes.Load(); n > 3 {
			t.Errorf("%d passes within 20 s", n)
		}
		r.hns.goOn()
	})
}
