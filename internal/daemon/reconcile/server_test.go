package reconcile_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
)

const serverURL = "https://api.example.com:6443"

// verifying adds the API server's CA to a manifest.
func verifying(m contract.Manifest, ca string) contract.Manifest {
	m.Files = append(m.Files, contract.File{Path: contract.PathBootstrapCA, Content: ca, Services: []string{"kubelet"}})
	return m
}

// verified writes a kubeconfig that has the CA ca and looks like kubelet's own.
func (r *rig) verified(t *testing.T, path, ca string) {
	t.Helper()
	r.write(t, path, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"users":[{"name":"u","user":{}}],
"clusters":[{"name":"k","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, serverURL,
		base64.StdEncoding.EncodeToString([]byte(ca))))
}

// caOf returns the CA in a kubeconfig.
func (r *rig) caOf(t *testing.T, path string) string {
	t.Helper()
	server, err := apiclient.ServerOf([]byte(r.read(t, path)))
	if err != nil {
		t.Errorf("%s: %v", path, err)
	}
	return string(server.CA)
}

func (r *rig) expectCA(t *testing.T, ca string) {
	t.Helper()
	for _, path := range []string{contract.PathKubeconfig, contract.PathFlannelKubeconfig} {
		content := r.read(t, path)
		server, err := apiclient.ServerOf([]byte(content))
		if err != nil || server.URL != serverURL || string(server.CA) != ca || !apiclient.IsKubeconfig([]byte(content)) {
			t.Errorf("%s has %s and %q, %v, want %q", path, server.URL, server.CA, err, ca)
		}
	}
	if got := r.read(t, contract.PathBootstrapCA); got != ca {
		t.Errorf("the CA file has %q, want %q", got, ca)
	}
}

// While a cluster rotates the CA of its API server, it publishes the old and the new CA. So nodes can change from the
// old CA to the new one.
func TestAnotherCAOfTheAPIServerReachesTheProgramsOfANode(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.want(t, verifying(manifest(), "old"), contract.Confidential{})
		pass(5 * time.Second)
		for _, path := range []string{contract.PathKubeconfig, contract.PathFlannelKubeconfig} {
			r.verified(t, path, "old")
		}
		pass(5 * time.Second)
		kubelet := r.pid(t, "kubelet")
		two := r.want(t, verifying(manifest(), "old and new"), contract.Confidential{})
		pass(5 * time.Second)
		r.expectStatus(t, two, "")
		r.expectCA(t, "old and new")
		if r.pid(t, "kubelet") == kubelet {
			t.Error("kubelet was not restarted, so it still uses the old CA")
		}
		// The next revision fails. Nevertheless, the daemon itself must trust the new CA, because otherwise it could
		// not receive the revision after that.
		r.picky.Store(true)
		r.trusted.fail(1)
		r.want(t, verifying(another("two"), "new"), contract.Confidential{})
		pass(30 * time.Second)
		r.expectStatus(t, two, contract.ReasonServiceFailed)
		r.expectCA(t, "old and new")
		if all := r.trusted.all(); !slices.Equal(all, []string{"old", "old and new", "new"}) {
			t.Errorf("the daemon trusted %q", all)
		}
	})
}

// Kubeconfigs may have an older CA than the CA file. Earlier operators updated only the CA file, and kubelet writes its
// kubeconfig with the CA that it read at its start.
func TestAKubeconfigThatIsBehindTheCAsFileIsBroughtUpToDate(t *testing.T) {
	for name, next := range map[string]func(t *testing.T, r *rig){
		"with the next revision": func(t *testing.T, r *rig) {
			r.want(t, verifying(another("two"), "old and new"), contract.Confidential{})
		},
		"without one": func(*testing.T, *rig) {},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.want(t, verifying(manifest(), "old and new"), contract.Confidential{})
				pass(5 * time.Second)
				kubelet, containerd := r.pid(t, "kubelet"), r.pid(t, "containerd")
				r.verified(t, contract.PathBootstrapKubeconfig, "old")
				r.verified(t, contract.PathFlannelKubeconfig, "old")
				next(t, r)
				pass(20 * time.Second)
				if has := r.caOf(t, contract.PathBootstrapKubeconfig); has != "old and new" {
					t.Errorf("the bootstrap kubeconfig has the CA %q", has)
				}
				r.verified(t, contract.PathKubeconfig, "old")
				pass(20 * time.Second)
				r.expectCA(t, "old and new")
				if r.pid(t, "kubelet") == kubelet {
					t.Error("kubelet was not restarted, so it still uses the old CA")
				}
				if r.pid(t, "containerd") != containerd {
					t.Error("containerd was restarted")
				}
				kubelet = r.pid(t, "kubelet")
				pass(time.Hour)
				if r.pid(t, "kubelet") != kubelet {
					t.Error("kubelet was restarted without a change")
				}
			})
		})
	}
}

// If a daemon is killed after it wrote the kubeconfig and before it restarted kubelet, the next daemon must restart
// kubelet.
func TestADaemonKilledWhileItBringsAKubeconfigUpToDateFinishesIt(t *testing.T) {
	t.Parallel()
	for at := int64(1); at <= 12; at++ {
		t.Run(fmt.Sprintf("before change %d", at), func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.want(t, verifying(manifest(), "old and new"), contract.Confidential{})
				pass(5 * time.Second)
				kubelet := r.pid(t, "kubelet")
				r.stopDaemon()
				r.verified(t, contract.PathKubeconfig, "old")
				r.verified(t, contract.PathFlannelKubeconfig, "old")
				r.mortal = &mortal{at: at}
				r.start(t, r.api)
				pass(20 * time.Second)
				r.stopDaemon()
				r.mortal = nil
				r.start(t, r.api)
				pass(20 * time.Second)
				r.expectCA(t, "old and new")
				if r.pid(t, "kubelet") == kubelet {
					t.Error("kubelet was not restarted, so it still uses the old CA")
				}
			})
		})
	}
}

// After a rotation of the CA, a revision fails. The host rolls back to a revision with the old CA, which no longer
// verifies the API server.
func TestGoingBackTakesNoKubeconfigTheCAThatVerifiesTheAPIServer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		one := r.want(t, verifying(manifest(), "old"), contract.Confidential{})
		pass(5 * time.Second)
		r.serves.Store("new")
		paths := []string{contract.PathKubeconfig, contract.PathFlannelKubeconfig}
		for _, path := range paths { // a join writes these
			r.verified(t, path, "new")
		}
		r.picky.Store(true)
		two := r.want(t, verifying(another("two"), "new"), contract.Confidential{})
		pass(30 * time.Second)
		r.expectStatus(t, one, contract.ReasonServiceFailed)
		pass(10 * time.Minute)
		for _, path := range paths {
			if has := r.caOf(t, path); has != "new" {
				t.Errorf("%s has %q, which does not verify the API server", path, has)
			}
		}
		r.picky.Store(false)
		pass(time.Hour)
		r.expectStatus(t, two, "")
		r.expectCA(t, "new")
	})
}

// A kubeconfig must get a new CA only when this CA verifies the API server. If it got the CA earlier, kubelet could not
// connect.
func TestAKubeconfigGetsACAWhenThatVerifiesTheAPIServer(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.serves.Store("old")
		r.verified(t, contract.PathKubeconfig, "old")
		r.verified(t, contract.PathFlannelKubeconfig, "old")
		two := r.want(t, verifying(manifest(), "new"), contract.Confidential{})
		pass(10 * time.Minute)
		r.expectStatus(t, two, "")
		if has := r.caOf(t, contract.PathKubeconfig); has != "old" {
			t.Errorf("kubelet's kubeconfig has %q, which does not verify the API server", has)
		}
		r.serves.Store("new")
		pass(5 * time.Minute)
		r.expectCA(t, "new")
	})
}

// If a kubeconfig is missing or can't be parsed, the revision must be verified nevertheless.
func TestAnotherCAOfTheAPIServerNeedsNoKubeconfig(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.write(t, contract.PathKubeconfig, string(make([]byte, 100)))
		two := r.want(t, verifying(manifest(), "new"), contract.Confidential{})
		pass(5 * time.Second)
		r.expectStatus(t, two, "")
	})
}

// The daemon may trust more CAs than those of the current revision. When a token is renewed, its kubeconfig must keep
// the revision's CA.
func TestARenewedTokenLeavesTheCAOfItsKubeconfigAsItIs(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		var server tokens
		server.serve(r)
		holds(t, r)
		r.write(t, contract.PathDaemonKubeconfig, daemonKubeconfig)
		two := r.want(t, verifying(azure(), "new"), contract.Confidential{})
		pass(5 * time.Minute)
		r.expectStatus(t, two, "")
		before, err := r.Host().Files.Stat(contract.PathCloudNodeKubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		pass(3 * time.Hour)
		after, err := r.Host().Files.Stat(contract.PathCloudNodeKubeconfig)
		if err != nil || !after.ModTime.Equal(before.ModTime) {
			t.Errorf("after %d tokens, the kubeconfig was written again: %v", server.requests.Load(), err)
		}
		if has := r.caOf(t, contract.PathCloudNodeKubeconfig); has != "new" {
			t.Errorf("the kubeconfig has %q", has)
		}
		if n := server.requests.Load(); n < 5 {
			t.Errorf("only %d tokens were requested", n)
		}
	})
}

// The daemon trusts the previous CA until the CA of the revision verifies the API server, even after a restart of the
// daemon.
func TestADaemonLooksAgainWhetherTheCAOfItsRevisionVerifiesTheAPIServer(t *testing.T) {
	for name, restart := range map[string]bool{"the same": false, "another": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				holds(t, r)
				r.serves.Store("old")
				two := r.want(t, verifying(manifest(), "new"), contract.Confidential{})
				pass(time.Hour)
				r.expectStatus(t, two, "")
				if n := len(r.trusted.all()); n < 3 || n > 15 {
					t.Errorf("the daemon checked the CA %d times within an hour", n)
				}
				if restart {
					r.stopDaemon()
					r.start(t, r.api)
				}
				r.serves.Store("new")
				before := len(r.trusted.all())
				pass(time.Hour)
				if n := len(r.trusted.all()) - before; n < 1 || n > 2 {
					t.Errorf("the daemon checked a CA that verifies the API server %d times", n)
				}
			})
		})
	}
}
