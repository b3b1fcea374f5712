package resolver_test

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// headerTimeout is what containerd waits for the header of an answer here: nearly three times what the resolver has it
// wait, so that it is late by no fault of a busy machine.
const headerTimeout = 12500 * time.Millisecond

// brisk has shorter times than on nodes.
func brisk() resolver.Options {
	return resolver.Options{Token: token, Connect: 5 * time.Second, FirstByte: 6500 * time.Millisecond,
		LastFirstByte: 20 * time.Second, Stall: 7500 * time.Millisecond, Whole: 25 * time.Second,
		Pause: 250 * time.Millisecond, Header: 4500 * time.Millisecond}
}

// newImpatientRig has a client that waits for a header as long as containerd does.
func newImpatientRig(t *testing.T, o resolver.Options, c resolver.Config) *rig {
	t.Helper()
	g := newRig(t, o, c)
	g.client.Transport.(*http.Transport).ResponseHeaderTimeout = headerTimeout
	return g
}

// hangs takes connections and requests, and never answers.
func hangs(_ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}

func hanging() faultFunc { return hangs }
func fine() faultFunc    { return nil }

// taking answers after a while, and begins anew if its client does not wait.
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

// slow keeps the first request until its client gives up, whenever that is, and answers later ones after a while.
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

// busy says three times that it is.
func busy() faultFunc {
	var asked atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if asked.Add(1) > 3 {
			return false
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
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
		asked  int // how often the last one is
		pause  time.Duration
	}{
		"two hang, the third is good":               {faults: []func() faultFunc{hanging, hanging, fine}, asked: 1},
		"one hangs, the other is slow":              {faults: []func() faultFunc{hanging, slow(9 * time.Second)}, asked: 2},
		"the only one takes longer than it waits":   {faults: []func() faultFunc{taking(14 * time.Second)}, asked: 1},
		"the only one is busy for longer than that": {faults: []func() faultFunc{busy}, asked: 4, pause: 2 * time.Second},
	} {
		for what, q := range questions {
			var mirrors []string
			var last *upstream
			for _, fault := range c.faults {
				last = newUpstream(t, m, large).failing(fault())
				mirrors = append(mirrors, last.host+"/m")
			}
			o := brisk()
			o.Pause = max(o.Pause, c.pause)
			rules := strings.Join(mirrors, " ") + " never"
			g := newImpatientRig(t, o, config(t, source+" tag "+rules, source+" digest "+rules))
			want := http.StatusOK
			if q.span != "" {
				want = http.StatusPartialContent
			}
			all.Go(func() { // side by side: they wait
				a := g.ask(t, q.method, source, "a/"+q.path, "Range", q.span)
				if a.err != nil || a.status != want || string(a.content) != string(q.content) {
					t.Error(name, what, a, g.Reports())
				}
				if n := last.asked("/v2/m/a/"); n != c.asked {
					t.Errorf("%s: %s: the last one was asked %d times", name, what, n)
				}
			})
		}
	}
}

// A place that never answers ends before containerd gives up the pull.
func TestA22_APullThatTakesTooLongHasAnError(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	var all sync.WaitGroup
	defer all.Wait()
	for _, path := range []string{"a/blobs/" + digestOf(m.layer), "a/manifests/" + digestOf(m.index)} {
		u := newUpstream(t, m).failing(hangs)
		o := brisk()
		o.FirstByte, o.LastFirstByte, o.Whole, o.Header = time.Hour, time.Hour, time.Hour, 2*time.Second
		g := newImpatientRig(t, o, config(t, source+" digest "+u.host+"/m never"))
		all.Go(func() {
			a := g.ask(t, http.MethodGet, source, path)
			if a.status != http.StatusBadGateway || !strings.Contains(string(a.content), u.host+"/m/a: Slow") {
				t.Error(a)
			}
			if r := g.report(t); !r.IsFailure() {
				t.Error(r)
			}
		})
	}
}

// So does a wait for a free place.
func TestA22_APullThatHasNoPlaceHasAnError(t *testing.T) {
	t.Parallel()
	m := newImage(1, 3<<20)
	u := newUpstream(t, m)
	u.failing(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", strconv.Itoa(len(m.layer)))
		_, _ = w.Write(m.layer[:1000])
		_ = http.NewResponseController(w).Flush()
		return hangs(w, r)
	})
	o := brisk()
	o.Streams, o.Stall, o.Header = 1, time.Hour, 2*time.Second
	g := newImpatientRig(t, o, config(t, source+" digest "+u.host+"/m never"))
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() { g.askWith(ctx, t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)) })
	defer first.Wait()
	defer cancel()
	eventually(t, func() bool { return u.asked("blobs") == 1 })
	a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer))
	if a.status != http.StatusBadGateway || !strings.Contains(string(a.content), "too many pulls are under way") {
		t.Error(a)
	}
	if _, failures := g.Counters(); failures != 1 {
		t.Errorf("%d failures are counted", failures)
	}
	if r := g.report(t); !r.IsFailure() || !strings.HasSuffix(r.Message(), ": too many pulls are under way") {
		t.Error(r.Message())
	}
}

// What goes wrong in a pull's own goroutine ends that pull, as net/http has it for handlers.
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

// redirected asks once, and says where to go on.
func redirected(t *testing.T, g *rig, path string) string {
	t.Helper()
	g.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	defer func() { g.client.CheckRedirect = nil }()
	a := g.ask(t, http.MethodGet, source, path)
	location, found := strings.CutPrefix(a.header.Get("Location"), "/v2/")
	if a.status != http.StatusTemporaryRedirect || !found {
		t.Fatal(a, location)
	}
	return location
}

func TestA22_WhatContainerdDoesNotComeBackForIsLetGo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		header time.Duration
		stop   bool
	}{
		"after a while":          {200 * time.Millisecond, false},
		"when the resolver ends": {10 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newImage(1, 1000)
			gone := make(chan struct{})
			u := newUpstream(t, m).failing(func(w http.ResponseWriter, r *http.Request) bool {
				defer close(gone)
				return hangs(w, r)
			})
			o := brisk()
			o.FirstByte, o.LastFirstByte, o.Header = time.Hour, time.Hour, c.header
			g := newImpatientRig(t, o, config(t, source+" digest "+u.host+"/m never"))
			redirected(t, g, "a/blobs/"+digestOf(m.layer))
			limit := 20 * time.Second
			if c.stop {
				g.stop()
				limit = c.header / 2
			}
			select {
			case <-gone:
			case <-time.After(limit):
				t.Fatal("it is still asked for")
			}
		})
	}
}

// What is waited for is given to who asks for the same, and only once.
func TestA22_AWaitIsForOneBlob(t *testing.T) {
	t.Parallel()
	m, other := newImage(1, 1000), newImage(2, 1000)
	u := newUpstream(t, m, other).failing(func(w http.ResponseWriter, r *http.Request) bool {
		return strings.Contains(r.URL.Path, digestOf(m.layer)) && taking(8*time.Second)()(w, r)
	})
	o := brisk()
	o.Header = 6 * time.Second
	g := newImpatientRig(t, o, config(t, source+" digest "+u.host+"/m never"))
	location := redirected(t, g, "a/blobs/"+digestOf(m.layer))
	_, query, _ := strings.Cut(location, "?")
	for i, c := range []struct {
		path  string
		want  []byte
		asked int // for the first blob
	}{
		{"a/blobs/" + digestOf(other.layer), other.layer, 1},
		{"a/blobs/" + digestOf(m.layer), m.layer, 1},
		{"a/blobs/" + digestOf(m.layer), m.layer, 2},
	} {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+"/v2/"+c.path+"?"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := g.send(request)
			if !a.isRight(c.want) || u.asked(digestOf(m.layer)) != c.asked {
				t.Error(a, u.asked(digestOf(m.layer)))
			}
		})
	}
}
