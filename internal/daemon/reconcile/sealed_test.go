package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// proxied has one revision hold that has a proxy with a password, and gives the path of what is sealed of it.
func proxied(t *testing.T, r *rig) (path string) {
	t.Helper()
	m := manifest()
	c := contract.Confidential{Environment: map[string]string{"HTTPS_PROXY": secretProxy}}
	m.WatchedEnvironmentVars = []string{"HTTP_PROXY", "HTTPS_PROXY"}
	holds(t, r)
	version := r.want(t, m, c)
	pass(10 * time.Second)
	r.expectStatus(t, version, "")
	entries, err := r.Host().Files.List(contract.DirSealed)
	if err != nil || len(entries) != 1 {
		t.Fatalf("sealed are %v, %v", entries, err)
	}
	return contract.DirSealed + `\` + entries[0].Name
}

// A scanner or a backup has a sealed file open for longer than the daemon waits for it. What is down has to come up
// when it is closed, whatever the Node names, and without the API server.
func TestServicesStartAsSoonAsWhatIsSealedCanBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		// begin holds the file while it is needed, and brings services down.
		begin func(t *testing.T, r *rig, path string)
	}{
		"another revision fails": {begin: func(t *testing.T, r *rig, path string) {
			r.FailService("hybrid-overlay-node", true) // kube-proxy, which needs it, is stopped by then
			two := r.want(t, another("two"), rules("a.example"))
			r.scanner.opens(path)
			pass(15 * time.Second)
			r.FailService("hybrid-overlay-node", false)
			if named := r.annotations(t)[contract.DesiredRevisionAnnotation]; named != two {
				t.Errorf("the Node names %s", named)
			}
		}},
		"the host boots without the API server": {begin: func(t *testing.T, r *rig, path string) {
			r.stopDaemon()
			if err := r.Host().Services.Stop(t.Context(), "kubelet"); err != nil {
				t.Fatal(err)
			}
			r.scanner.opens(path)
			r.start(t, nil)
			pass(15 * time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.scanner = &scanner{time: time.Hour}
				path := proxied(t, r)
				c.begin(t, r, path)
				if state := r.state(t, "kube-proxy"); !r.scanner.hasHeld() || state == winos.ServiceRunning {
					t.Errorf("kube-proxy is %s: this shows nothing", state)
				}
				r.scanner.opens("")
				pass(30 * time.Second)
				r.expectServing(t, "{}")
				if value, _ := r.variable(t, "HTTPS_PROXY"); value != secretProxy {
					t.Errorf("the proxy is %q", value)
				}
			})
		})
	}
}

// The same in the middle of a trial: it goes on, and nothing is given up for it.
func TestATrialGoesOnAsSoonAsWhatIsSealedCanBeRead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.scanner = &scanner{time: time.Hour}
		before := proxied(t, r)
		r.hns.hang()
		r.want(t, another("two"), rules("a.example"))
		pass(40 * time.Second)
		entries, err := r.Host().Files.List(contract.DirSealed)
		if err != nil || len(entries) != 2 {
			t.Fatalf("sealed are %v, %v", entries, err)
		}
		path := contract.DirSealed + `\` + entries[0].Name
		if path == before {
			path = contract.DirSealed + `\` + entries[1].Name
		}
		r.stopDaemon()
		r.hns.goOn()
		r.scanner.opens(path)
		r.start(t, nil) // the API server is away
		pass(time.Minute)
		if !r.scanner.hasHeld() {
			t.Error("the scanner held nothing: this shows nothing")
		}
		r.scanner.opens("")
		pass(10 * time.Minute)
		r.expectServing(t, "two")
	})
}
