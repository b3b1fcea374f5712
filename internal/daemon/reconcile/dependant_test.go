package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// agents installs and starts services of another vendor. The first of them depends on the service in the parameter
// needs, and each of the others depends on the one before it.
func (r *rig) agents(t *testing.T, needs string, names ...string) {
	t.Helper()
	services := r.Host().Services
	const exe = `C:\agent\agent.exe` // all of them use this program
	if r.read(t, exe) == "absent" {
		r.write(t, exe, "MZ agent")
	}
	for _, name := range names {
		if err := services.Apply(t.Context(), winos.ServiceConfig{Name: name, Description: "somebody's",
			Command: exe, Dependencies: []string{needs}}); err != nil {
			t.Fatal(err)
		}
		if err := services.Start(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		needs = name
	}
}

func (r *rig) expectAgents(t *testing.T, want winos.ServiceState, names ...string) {
	t.Helper()
	for _, name := range names {
		if got := r.state(t, name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// If other vendors' services, such as an agent, depend on ours, they stop together with ours, but only for a moment.
func TestServicesOfOthersThatNeedOursComeBackWithThem(t *testing.T) {
	for name, c := range map[string]struct {
		during func(t *testing.T, r *rig)
		// wait is the time until the services run again, including pauses after failures.
		wait time.Duration
	}{
		"at once": {during: func(*testing.T, *rig) {}},
		"although the daemon is killed in between": {during: func(t *testing.T, r *rig) {
			r.StopLinger("kubelet", 3*time.Second)
			r.stopDaemonAt(t, "kubelet", winos.ServiceStopped)
			r.start(t, r.api)
		}},
		"after a while, when what they need has to wait": {during: func(t *testing.T, r *rig) {
			r.hns.hang()
			pass(time.Minute)
			r.expectAgents(t, winos.ServiceStopped, "proxy-agent")
			r.expectAgents(t, winos.ServiceRunning, "agent", "a-second")
			r.hns.goOn()
		}},
		"although the revision is given up": {during: func(_ *testing.T, r *rig) {
			r.picky.Store(true)
			pass(30 * time.Second)
			r.picky.Store(false)
		}, wait: 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.agents(t, "kubelet", "agent", "a-second")
				r.agents(t, "kube-proxy", "proxy-agent")
				r.agents(t, "containerd", "off")
				if err := r.Host().Services.Stop(t.Context(), "off"); err != nil {
					t.Fatal(err)
				}
				two := r.publish(t, another("two"))
				r.annotate(t, contract.DesiredRevisionAnnotation, two)
				c.during(t, r)
				pass(time.Minute + c.wait)
				r.expectStatus(t, two, "")
				r.expectAgents(t, winos.ServiceRunning, "agent", "a-second", "proxy-agent")
				r.expectAgents(t, winos.ServiceStopped, "off")
				// If the service's owner stops the service later, the daemon must not start it.
				if err := r.Host().Services.Stop(t.Context(), "agent"); err != nil {
					t.Fatal(err)
				}
				pass(10 * time.Minute)
				r.expectAgents(t, winos.ServiceStopped, "agent", "a-second")
			})
		})
	}
}

func TestAServiceOfOthersThatDoesNotStartAgainKeepsNoRevisionBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.agents(t, "kubelet", "agent")
		r.FailService("agent", true)
		two := r.publish(t, another("two"))
		r.annotate(t, contract.DesiredRevisionAnnotation, two)
		pass(20 * time.Minute)
		r.expectStatus(t, two, "")
		r.FailService("agent", false)
		pass(20 * time.Minute)
		r.expectAgents(t, winos.ServiceStopped, "agent") // now its owner is responsible
	})
}

// The daemon has given up the start of a vendor's service. When our services restart later, the daemon tries to start
// the vendor's service again, because its owner may have repaired it.
func TestAServiceOfOthersThatWasLeftToItsOwnerIsTriedAgainTheNextTime(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.agents(t, "kubelet", "agent")
		r.FailService("agent", true)
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(20 * time.Minute)
		r.FailService("agent", false)
		if err := r.Host().Services.Start(t.Context(), "agent"); err != nil {
			t.Fatal(err)
		}
		r.FailService("agent", true)
		three := r.publish(t, another("three"))
		r.annotate(t, contract.DesiredRevisionAnnotation, three)
		pass(time.Second)
		r.expectAgents(t, winos.ServiceStopped, "agent")
		r.FailService("agent", false)
		pass(20 * time.Minute)
		r.expectStatus(t, three, "")
		r.expectAgents(t, winos.ServiceRunning, "agent")
	})
}

// If the state file was lost, the daemon recognizes its own services by their descriptions.
func TestOurServicesAreNoneOfOthersAfterTheStateFileWasLost(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.stopDaemon()
		stateFile, err := state.Read(r.Host().Files)
		if err != nil {
			t.Fatal(err)
		}
		stateFile.Services = nil
		if err = stateFile.Save(); err != nil {
			t.Fatal(err)
		}
		r.hns.hang()
		r.start(t, r.api)
		pass(time.Minute)
		r.expectAgents(t, winos.ServiceStopped, "kube-proxy") // the daemon doesn't know the service's settings yet
		r.hns.goOn()
		pass(time.Minute)
		r.expectStatus(t, one(), "")
	})
}

// stopDaemonAt stops the daemon as soon as the service with this name is in this state.
func (r *rig) stopDaemonAt(t *testing.T, name string, state winos.ServiceState) {
	t.Helper()
	for range 10_000 {
		if r.state(t, name) == state {
			r.stopDaemon()
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%s was never %s", name, state)
}
