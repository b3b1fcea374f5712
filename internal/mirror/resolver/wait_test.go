package resolver_test

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// headerTimeout is how long containerd waits for a response header in these tests. It is nearly three times the
// resolver's limit, so that a busy machine causes no failures.
const headerTimeout = 12500 * time.Millisecond

// brisk has shorter time limits than a node.
func brisk() resolver.Options {
	return resolver.Options{Token: token, Connect: 5 * time.Second, FirstByte: 6500 * time.Millisecond,
		Header: 8 * time.Second, LastFirstByte: 40 * time.Second, Stall: 7500 * time.Millisecond}
}

// newImpatientRig has a client that waits for a header only as long as containerd does.
func newImpatientRig(t *testing.T, o resolver.Options, c resolver.Config) *rig {
	t.Helper()
	g := newRig(t, o, c)
	g.client.Transport.(*http.Transport).ResponseHeaderTimeout = headerTimeout
	return g
}

// hangs accepts connections and requests, and never answers.
func hangs(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

func hanging() faultFunc { return hangs }
func fine() faultFunc    { return nil }

// taking answers each request after a delay. If the client gives up, its next request has the full delay again.
func taking(while time.Duration) func() faultFunc {
	return func() faultFunc {
		return func(_ http.ResponseWriter, r *http.Request) bool {
			select {
			case <-time.After(while):
				return false
			case <-r.Context().Done():
				return true
			}
		}
	}
}

// slow doesn't answer the first request until its client gives up. It answers later requests after a while.
func slow(while time.Duration) func() faultFunc {
	return func() faultFunc {
		var asked atomic.Int64
		late := taking(while)()
		return func(w http.ResponseWriter, r *http.Request) bool {
			if asked.Add(1) == 1 {
				return hangs(w, r)
			}
			return late(w, r)
		}
	}
}

func TestA22_ContainerdHasAnAnswerInTimeWhateverMirrorsDo(t *testing.T) {
	t.Parallel()
	m, large := newImage(1, 1000), newImage(2, 3<<20)
	questions := map[string]struct {
		method, path, span string
		content            []byte
	}{
		"manifest by tag":    {http.MethodGet, "manifests/latest", "", large.index},
		"question by tag":    {http.MethodHead, "manifests/latest", "", nil},
		"manifest by digest": {http.MethodGet, "manifests/" + digestOf(m.index), "", m.index},
		"question by digest": {http.MethodHead, "manifests/" + digestOf(m.index), "", nil},
		"small blob":         {http.MethodGet, "blobs/" + digestOf(m.layer), "", m.layer},
		"large blob":         {http.MethodGet, "blobs/" + digestOf(large.layer), "", large.layer},
		"part of a blob":     {http.MethodGet, "blobs/" + digestOf(large.layer), "bytes=9-", large.layer[9:]},
		"question of a blob": {http.MethodHead, "blobs/" + digestOf(m.layer), "", nil},
	}
	var all sync.WaitGroup
	defer all.Wait()
	for name, c := range map[string]struct {
		faults []func() faultFunc
		asked  int // how often the last mirror is asked
		// layers means that only requests for layers may wait that long.
		layers bool
	}{
		"two hang, the third is good":             {faults: []func() faultFunc{hanging, hanging, fine}, asked: 1},
		"one hangs, the other is slow":            {faults: []func() faultFunc{hanging, slow(9 * time.Second)}, asked: 2, layers: true},
		"the only one takes longer than it waits": {faults: []func() faultFunc{taking(14 * time.Second)}, asked: 1, layers: true},
	} {
		for what, q := range questions {
			if c.layers && what != "small blob" && what != "large blob" {
				continue
			}
			var mirrors []string
			var last *upstream
			for _, fault := range c.faults {
				last = newUpstream(t, m, large).failing(fault())
				mirrors = append(mirrors, last.host+"/m")
			}
			rules := strings.Join(mirrors, " ") + " never"
			g := newImpatientRig(t, brisk(), config(t, source+" tag "+rules, source+" digest "+rules))
			want := http.StatusOK
			if q.span != "" {
				want = http.StatusPartialContent
			}
			all.Go(func() { // in parallel, because they wait
				a := g.ask(t, q.method, source, "a/"+q.path, "Range", q.span)
				if a.err != nil || a.status != want || string(a.content) != string(q.content) {
					t.Error(name, what, a, g.Reports())
				}
				if n := last.asked("/v2/m/a/"); n != c.asked {
					t.Errorf("%s: %s: the last mirror was asked %d times", name, what, n)
				}
			})
		}
	}
}

// The source never answers. The resolver must return an error before containerd gives up. For a layer, it has sent
// the header by then.
func TestA22_APullThatTakesTooLongHasAnError(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	var all sync.WaitGroup
	defer all.Wait()
	for path, isLayer := range map[string]bool{"a/blobs/" + digestOf(m.layer): true,
		"a/manifests/" + digestOf(m.index): false} {
		u := newUpstream(t, m).failing(hangs)
		o := brisk()
		o.FirstByte, o.Header, o.LastFirstByte = time.Hour, 2*time.Second, 4*time.Second
		g := newImpatientRig(t, o, config(t, source+" digest "+u.host+"/m never"))
		all.Go(func() {
			a := g.ask(t, http.MethodGet, source, path)
			if isLayer && (a.status != http.StatusOK || a.err == nil || len(a.content) > 0) ||
				!isLayer && a.status != http.StatusBadGateway {
				t.Error(a)
			}
			if r := g.report(t); !r.IsFailure() || !strings.Contains(r.Message(), u.host+"/m/a: Slow") {
				t.Error(r)
			}
		})
	}
}

// A panic in a pull's own goroutine must end only this pull, as net/http does for its handlers.
func TestA22_APanicEndsOnePull(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	c := config(t, source+" digest "+newUpstream(t, m).host+"/m never")
	var once sync.Once
	c.Proxy = func(r *http.Request) (proxy *url.URL, err error) {
		if strings.Contains(r.URL.Path, "/manifests/") {
			once.Do(func() { panic("on purpose") })
		}
		return nil, nil
	}
	g := newRig(t, brisk(), c)
	path := "a/manifests/" + digestOf(m.index)
	if a := g.ask(t, http.MethodGet, source, path); a.err == nil {
		t.Error(a)
	}
	if a := g.ask(t, http.MethodGet, source, path); !a.isRight(m.index) {
		t.Error(a)
	}
}
