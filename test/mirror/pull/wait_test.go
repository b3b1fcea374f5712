package pull_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// headerTimeout is how long containerd waits for a header in these tests. It is longer than the resolver's limit.
const headerTimeout = 10500 * time.Millisecond

// newBriskNode returns a node whose resolver and containerd have shorter time limits than on real nodes.
func newBriskNode(t *testing.T, n *network) *node {
	t.Helper()
	d := newNodeWith(t, n, resolver.Options{FirstByte: 2500 * time.Millisecond, Header: 7500 * time.Millisecond,
		LastFirstByte: 40 * time.Second, Stall: 7500 * time.Millisecond})
	d.headerTimeout = headerTimeout
	return d
}

// late answers a request for a layer only after containerd's time limit. If the client disconnects earlier, the
// registry starts again with the next request.
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
// containerd waits for a header. The mirrors need the cluster's pull secret. The pull must succeed without the source,
// and each layer must be requested only once.
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
		all.Go(func() { // the cases run in parallel, because they mostly wait
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
					t.Errorf("the source was contacted %d times, want none", asked)
				}
				if len(c.faults) > 1 {
					return
				}
				for _, layer := range layersOf(t, image) {
					if asked := last.asked(layer); asked > 1 {
						t.Errorf("a layer was requested %d times, want once", asked)
					}
				}
			})
		})
	}
}

// TestA22_AWaitKeepsThePodsCredentials pulls from a slow source that only the pod has credentials for. The credentials
// must still be used after the wait.
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
