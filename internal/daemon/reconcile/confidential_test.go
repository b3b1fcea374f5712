package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// proxied applies a revision that sets a proxy with a password.
func proxied(t *testing.T, r *rig) {
	t.Helper()
	m := manifest()
	m.WatchedEnvironmentVars = []string{"HTTP_PROXY", "HTTPS_PROXY"}
	holds(t, r)
	version := r.want(t, m, contract.Confidential{Environment: map[string]string{"HTTPS_PROXY": secretProxy}})
	pass(10 * time.Second)
	r.expectStatus(t, version, "")
}

// If services were stopped, they must start with the proxy's password, even if the API server is unreachable.
func TestServicesStartWithTheirConfidentialEnvironmentWithoutTheAPIServer(t *testing.T) {
	for name, bring := range map[string]func(t *testing.T, r *rig){
		"another revision fails meanwhile": func(t *testing.T, r *rig) {
			r.FailService("hybrid-overlay-node", true) // kube-proxy depends on this service, and was stopped before
			two := r.want(t, another("two"), rules("a.example"))
			pass(15 * time.Second)
			if named := r.annotations(t)[contract.DesiredRevisionAnnotation]; named != two {
				t.Errorf("the Node names revision %s", named)
			}
			if state := r.state(t, "kube-proxy"); state == winos.ServiceRunning {
				t.Errorf("kube-proxy is %s, so the test shows nothing", state)
			}
			r.stopDaemon()
			r.FailService("hybrid-overlay-node", false)
			r.start(t, nil)
		},
		"the host boots": func(t *testing.T, r *rig) {
			r.stopDaemon()
			if err := r.Host().Services.Stop(t.Context(), "kubelet"); err != nil {
				t.Fatal(err)
			}
			r.start(t, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				proxied(t, r)
				bring(t, r)
				pass(30 * time.Second)
				r.expectServing(t, "{}")
				if value, _ := r.variable(t, "HTTPS_PROXY"); value != secretProxy {
					t.Errorf("the proxy is %q", value)
				}
				if env := *r.environment.Load(); env["HTTPS_PROXY"] != secretProxy {
					t.Errorf("kube-proxy's environment has %q", env["HTTPS_PROXY"])
				}
			})
		})
	}
}

// If the API server becomes unreachable, a trial continues with the confidential part of its revision.
func TestATrialGoesOnWithItsConfidentialPartWithoutTheAPIServer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		proxied(t, r)
		r.hns.hang()
		r.want(t, another("two"), rules("a.example"))
		pass(40 * time.Second)
		r.stopDaemon()
		r.hns.goOn()
		r.start(t, nil)
		pass(10 * time.Minute)
		r.expectServing(t, "two")
		if rule := r.read(t, hostsFile("a.example")); rule != "m.example/a.example" {
			t.Errorf("containerd's rule is %q", rule)
		}
	})
}
