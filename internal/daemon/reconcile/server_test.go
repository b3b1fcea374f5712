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

// verifying is a manifest with a CA of the API server.
func verifying(m contract.Manifest, ca string) contract.Manifest {
	m.Files = append(m.Files, contract.File{Path: contract.PathBootstrapCA, Content: ca, Services: []string{"kubelet"}})
	return m
}

// verified writes a kubeconfig as kubelet writes its own.
func (r *rig) verified(t *testing.T, path, ca string) {
	t.Helper()
	r.write(t, path, fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"users":[{"name":"u","user":{}}],
"clusters":[{"name":"k","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, serverURL,
		base64.StdEncoding.EncodeToString([]byte(ca))))
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
		t.Errorf("the CA's file has %q, want %q", got, ca)
	}
}

// A cluster that rotates the CA of its API server has both for a while: nodes come from one to the other by that.
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
			t.Error("kubelet runs on with what it read when it started")
		}
		// The daemon itself must hear what the next revision is, whatever becomes of this one.
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

// A kubeconfig that is not there yet, or can't be used, keeps nothing back.
func TestAnotherCAOfTheAPIServerNeedsNoKubeconfig(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.write(t, contract.PathKubeconfig, string(make([]byte, 100)))
		two := r.want(t, verifying(manifest(), "new"), contract.Confidential{})
		pass(5 * time.Second)
		r.expectStatus(t, two, "")
	})
}
