package pull_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// headerTimeout is what containerd waits for the header of an answer here, longer than the resolver lets it wait.
const headerTimeout = 10500 * time.Millisecond

// newBriskNode has shorter times than nodes have, of the resolver and of containerd.
func newBriskNode(t *testing.T, n *network) *node {
	t.Helper()
	d := newNodeWith(t, n, resolver.Options{FirstByte: 2500 * time.Millisecond, Header: 7500 * time.Millisecond,
		LastFirstByte: 40 * time.Second, Stall: 7500 * time.Millisecond})
	d.headerTimeout = headerTimeout
	return d
}

// late answers a request for a layer when containerd would have given up. If the client doesn't wait, the
// registry begins again.
func late(w http.ResponseWriter, r *http.Request, real http.Handler) {
	if !strings.Contains(r.URL.Path, "/blobs/") {
		real.ServeHTTP(w, r)
		return
	}
	select {
	case <-time.After(headerTimeout + 500*time.Millisecond):
		real.ServeHTTP(w, r)
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// TestA22_ContainerdWaitsForTheResolverWhateverMirrorsDo uses mirrors that keep the resolver busy longer than
// containerd waits for a header. They need the cluster's pull secret.
func TestA22_ContainerdWaitsForTheResolverWhateverMirrorsDo(t *testing.T) {
	t.Parallel()
	type fault = func(http.ResponseWriter, *http.Request, http.Handler)
	var all sync.WaitGroup
	defer all.Wait()
	for name, c := range map[string]struct {
		faults      []fault
		kind, never string
	}{
		"two hang, the third is good, the source is next": {[]fault{silent, silent, nil}, "tag", ""},
		"two hang, the third is good":                     {[]fault{silent, silent, nil}, "digest", " never"},
		"the only one takes longer than it waits":         {[]fault{late}, "tag", " never"},
	} {
		all.Go(func() { // side by side: they wait
			t.Run(name, func(t *testing.T) {
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
				d := newBriskNode(t, n)
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
		late(w, r, real)
	})
	d := newBriskNode(t, n)
	d.apply(t, settings{rules: []string{source + "/other tag m1.test never"}})
	d.pod = origin.user
	d.mustPull(t, source+"/team/app:v1")
}
