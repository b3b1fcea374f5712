package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// own returns the value of a variable in the environment that the services are configured with.
func (r *rig) own(t *testing.T, name string) (value string, there bool) {
	t.Helper()
	for _, s := range manifest().Services {
		got, err := r.Host().Services.Get(t.Context(), s.Name)
		if err != nil {
			t.Fatal(err)
		}
		value, there = got.Environment[name]
	}
	return value, there
}

// reboot cuts the power and starts the machine again. It also stops and starts the daemon, because in these tests the
// daemon is not a process of the simulated machine.
func (r *rig) reboot(t *testing.T) {
	t.Helper()
	r.stopDaemon()
	r.PowerCut()
	r.PowerOn()
	r.start(t, r.api)
	pass(time.Minute)
}

// The service manager passes the system variables of the last boot to services. So if a variable existed at the last
// boot and is withdrawn, it must be overridden until the next boot.
func TestA24_AVariableThatWasWithdrawnIsGoneFromServices(t *testing.T) {
	watched := manifest()
	watched.WatchedEnvironmentVars = []string{"HTTP_PROXY", "HTTPS_PROXY"}
	proxy := contract.Confidential{Environment: map[string]string{"HTTPS_PROXY": secretProxy}}
	without := func(t *testing.T, r *rig) {
		t.Helper()
		r.want(t, watched, contract.Confidential{})
		pass(10 * time.Second)
		if value, there := r.variable(t, "HTTPS_PROXY"); there {
			t.Errorf("the system still has %q", value)
		}
	}
	t.Run("at once, if it was set after the boot", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			holds(t, r)
			r.want(t, watched, proxy)
			pass(10 * time.Second)
			without(t, r)
			if value, there := r.own(t, "HTTPS_PROXY"); there {
				t.Errorf("the services' environment has %q", value)
			}
		})
	})
	t.Run("at the next boot, if it was set before the last boot", func(t *testing.T) {
		inBubble(t, func(t *testing.T, r *rig) {
			holds(t, r)
			two := r.want(t, watched, proxy)
			pass(10 * time.Second)
			r.reboot(t)
			without(t, r)
			three := r.annotations(t)[contract.DesiredRevisionAnnotation]
			if value, there := r.own(t, "HTTPS_PROXY"); !there || value != "" {
				t.Errorf("the services' environment has %q, so the service manager's old value is not overridden",
					value)
			}
			r.reboot(t)
			if value, there := r.own(t, "HTTPS_PROXY"); there {
				t.Errorf("the services' environment has %q", value)
			}
			for _, version := range []string{two, three} {
				r.annotate(t, contract.DesiredRevisionAnnotation, version)
				pass(10 * time.Second)
			}
			if value, there := r.own(t, "HTTPS_PROXY"); there {
				t.Errorf("after two more changes, the services' environment has %q", value)
			}
		})
	})
}
