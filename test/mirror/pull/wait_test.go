package pull_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// scale is by how much the times of these tests are shorter than those on nodes, of the resolver and
// of containerd.
const scale = 10

// newScaledNode has all times as they are on nodes, scaled.
func newScaledNode(t *testing.T, n *network) *node {
	t.Helper()
	d := newNodeWith(t, n, resolver.Options{FirstByte: 15 * time.Second / scale, LastFirstByte: 2 * time.Minute / scale,
		Stall: 30 * time.Second / scale, Whole: time.Minute / scale, Pause: time.Second / scale,
		Header: 25 * time.Second / scale})
	d.patience = docker.DefaultHTTPTransport(nil).ResponseHeaderTimeout / scale
	return d
}

// takes answers after a while; if whoever asked does not wait, all was in vain.
func takes(while time.Duration) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		select {
		case <-time.After(while):
			real.ServeHTTP(w, r)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

// TestA22_ContainerdWaitsForTheResolverWhateverMirrorsDo has mirrors for which the resolver needs
// longer than containerd waits for a header. They need the cluster's pull secret.
func TestA22_ContainerdWaitsForTheResolverWhateverMirrorsDo(t *testing.T) {
	t.Parallel()
	type fault = func(http.ResponseWriter, *http.Request, http.Handler)
	for name, c := range map[string]struct {
		faults      []fault
		kind, never string
	}{
		"two hang, the third is good, the source is next": {[]fault{silent, silent, nil}, "tag", ""},
		"two hang, the third is good":                     {[]fault{silent, silent, nil}, "digest", " never"},
		"the only one takes 35 s":                         {[]fault{takes(35 * time.Second / scale)}, "tag", " never"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			image := newImage(t, 2<<20)
			s := settings{rules: []string{source + "/team " + c.kind}, users: map[string]string{}}
			var last *registry
			for i, fault := range c.faults {
				host := []string{"m1.test", "m2.test", "m3.test"}[i]
				last = newRegistry(t, n, host, withUsers).push(t, "team/app", image).failing(fault)
				s.rules[0] += " " + host + "/team"
				s.users[host] = last.user
			}
			s.rules[0] += c.never
			newRegistry(t, n, source, open).push(t, "team/app", image)
			d := newScaledNode(t, n)
			d.apply(t, s)
			reference := source + "/team/app:v1"
			if c.kind == "digest" {
				reference = source + "/team/app@" + digestOf(t, image)
			}
			d.mustPull(t, reference)
			if asked := n.connections(source); asked > 0 {
				t.Errorf("the source was asked %d times", asked)
			}
			if len(c.faults) > 1 {
				return
			}
			for _, layer := range layersOf(t, image) {
				if asked := last.asked(layer); asked > 1 {
					t.Errorf("a layer was asked for %d times", asked)
				}
			}
		})
	}
}

// TestA22_AWaitKeepsThePodsCredentials has a slow source that only the pod has credentials for.
func TestA22_AWaitKeepsThePodsCredentials(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	origin := newRegistry(t, n, source, withUsers).push(t, "team/app", newImage(t, 2<<20))
	origin.failing(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		if r.Header.Get("Authorization") == "" {
			real.ServeHTTP(w, r)
			return
		}
		takes(35*time.Second/scale)(w, r, real)
	})
	d := newScaledNode(t, n)
	d.apply(t, settings{rules: []string{source + "/other tag m1.test never"}})
	d.pod = origin.user
	d.mustPull(t, source+"/team/app:v1")
}
