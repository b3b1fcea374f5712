package resolver_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Layers come for minutes over slow lines, and manifests of other images must not wait for them.
func TestA22_LayersThatTakeEveryPlaceKeepNoManifestWaiting(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	begun, release := make(chan struct{}), make(chan struct{})
	u := newUpstream(t, m).failing(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			close(begun)
			<-release
		}
		return false
	})
	o := calm()
	o.Streams = 1
	g := newRig(t, o, config(t, source+" digest "+u.host+"/m never"))
	var layer sync.WaitGroup
	layer.Go(func() {
		if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
			t.Error(a)
		}
	})
	<-begun
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	a := g.askWith(ctx, t, http.MethodGet, source, "a/manifests/"+digestOf(m.index))
	close(release)
	layer.Wait()
	if !a.isRight(m.index) {
		t.Error(a)
	}
}

// A place may be held for days, at the least rate.
func TestA22_ARegistryThatIsSlowLeavesRoomForOthers(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	release := make(chan struct{})
	slow := newUpstream(t, m).failing(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			<-release
		}
		return false
	})
	o := calm()
	o.Streams, o.FirstByte, o.LastFirstByte = 4, 5*time.Minute, 5*time.Minute
	const other = "other.example"
	g := newRig(t, o, config(t, source+" digest "+slow.host+"/m never", other+" digest "+newUpstream(t, m).host+"/m never"))
	var layers sync.WaitGroup
	for range 8 {
		layers.Go(func() {
			if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
				t.Error(a)
			}
		})
	}
	eventually(t, func() bool { return len(slow.seen()) >= 2 })
	for range 20 { // whoever comes first: the others have to stay away
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if a := g.askWith(ctx, t, http.MethodGet, other, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
			t.Error(a)
		}
		cancel()
	}
	close(release)
	layers.Wait()
}

// The first request for a token hangs, and all others waited for the same answer.
func TestA22_ATokenServerThatHangsOnceIsAskedAnewByOthers(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	tokens := &tokens{}
	inner := tokens.wanted(u)
	var asked atomic.Bool
	begun, release := make(chan struct{}), make(chan struct{})
	u.auth = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" && asked.CompareAndSwap(false, true) {
			close(begun)
			<-release
		}
		return inner(w, r)
	}
	o := calm()
	o.Connect, o.FirstByte = time.Second, 5*time.Minute
	g := newRig(t, o, config(t, source+" digest "+u.host+"/m never"))
	var first sync.WaitGroup
	hasBegun := func() bool {
		select {
		case <-begun:
			return true
		default:
			return false
		}
	}
	first.Go(func() {
		// On a busy machine a second may be too short to connect: then it has not begun yet.
		for a := (answer{}); !a.isRight(m.layer); {
			begun := hasBegun()
			if a = g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); begun && !a.isRight(m.layer) {
				t.Error(a)
				return
			}
		}
	})
	defer first.Wait()
	defer close(release)
	eventually(t, hasBegun)
	eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return g.askWith(ctx, t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)).isRight(m.layer)
	})
}
