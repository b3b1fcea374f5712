package resolver_test

import (
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Over a slow line, layers take minutes. Manifests of other images must not wait for them.
func TestA22_LayersThatTakeEveryPlaceKeepNoManifestWaiting(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	release := make(chan struct{})
	u := newUpstream(t, m).failing(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			<-release
		}
		return false
	})
	o := calm()
	o.LastFirstByte = 5 * time.Minute
	g := newRig(t, o, config(t, source+" digest "+u.host+"/m never"))
	var layer sync.WaitGroup
	layer.Go(func() {
		if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
			t.Error(a)
		}
	})
	defer layer.Wait()
	defer close(release)
	eventually(t, func() bool { return u.asked("/blobs/") > 0 })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if a := g.askWith(ctx, t, http.MethodGet, source, "a/manifests/"+digestOf(m.index)); !a.isRight(m.index) {
		t.Error(a)
	}
}

// A slow registry may hold a slot for days. Other registries must still have free slots.
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
	o.FirstByte, o.LastFirstByte = 5*time.Minute, 5*time.Minute
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
	defer layers.Wait()
	defer close(release)
	eventually(t, func() bool { return len(slow.seen()) >= 2 })
	for range 20 { // the order of the requests is random, so several attempts are needed
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if a := g.askWith(ctx, t, http.MethodGet, other, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
			t.Error(a)
		}
		cancel()
	}
}

// leavesRoom starts many requests without answers, and checks whether other requests are answered.
func leavesRoom(t *testing.T, g *rig, m image, held func() bool, slow ...string) {
	t.Helper()
	const other = "other.example"
	ctx, cancel := context.WithCancel(t.Context())
	var under sync.WaitGroup
	for _, registry := range slow {
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			for range 6 {
				for _, path := range []string{"a/blobs/" + digestOf(m.layer), "a/manifests/latest"} {
					under.Go(func() { g.askWith(ctx, t, method, registry, path) })
				}
			}
		}
	}
	defer under.Wait()
	defer cancel()
	eventually(t, held)
	for range 20 { // the order of the requests is random, so several attempts are needed
		for path, content := range map[string][]byte{
			"a/blobs/" + digestOf(m.layer): m.layer, "a/manifests/" + digestOf(m.index): m.index,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			a := g.askWith(ctx, t, http.MethodGet, other, path)
			cancel()
			if !a.isRight(content) {
				t.Fatal(path, a)
			}
		}
	}
}

// A pod chooses the registry and its port. Manifests and requests without a body also use slots.
func TestA22_ARegistryThatHangsLeavesRoomWhateverItsPort(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	slow := newUpstream(t, m).failing(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v2/" {
			<-r.Context().Done()
		}
		return true
	})
	o := calm()
	o.FirstByte, o.LastFirstByte = 5*time.Minute, 5*time.Minute
	g := newRig(t, o, config(t, "slow.example:1 tag "+slow.host+"/m never", "slow.example:2 tag "+slow.host+"/m never",
		"other.example digest "+newUpstream(t, m).host+"/m never"))
	leavesRoom(t, g, m, func() bool { return len(slow.seen()) >= 4 }, "slow.example:1", "slow.example:2")
}

// A pod can name as many registries as it likes. Some slots are reserved for registries that the cluster's rules
// name.
func TestA22_RegistriesThatNobodyNamesLeaveRoomForOthers(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var connections atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept() // it sends nothing
			if err != nil {
				return
			}
			defer conn.Close()
			connections.Add(1)
		}
	}()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o := calm()
	o.Connect, o.FirstByte, o.LastFirstByte = 5*time.Minute, 5*time.Minute, 5*time.Minute
	g := newRig(t, o, config(t, "other.example digest "+newUpstream(t, m).host+"/m never"))
	leavesRoom(t, g, m, func() bool { return connections.Load() >= 2 }, "127.0.0.1:"+port, "localhost:"+port)
}

// A manifest that arrives one byte at a time must hold its slot only for a limited time.
func TestA22_AManifestThatTricklesEnds(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, m).failing(func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.Contains(r.URL.Path, "/manifests/") {
					return false
				}
				tick := time.NewTicker(10 * time.Millisecond)
				defer tick.Stop()
				for r.Context().Err() == nil {
					_, _ = w.Write([]byte(" "))
					_ = http.NewResponseController(w).Flush()
					<-tick.C
				}
				return true
			})
			o := calm()
			o.Header, o.Stall = 200*time.Millisecond, 5*time.Minute // only the first limit can end the request
			g := newRig(t, o, config(t, source+" tag "+u.host+"/m never"))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			a := g.askWith(ctx, t, method, source, "a/manifests/latest")
			if a.err != nil || a.status != http.StatusBadGateway {
				t.Fatal(a)
			}
			if r := g.report(t); len(r.Attempts) == 0 {
				t.Error(r)
			}
		})
	}
}

// The first request for a token hangs. All other requests once waited for the same answer.
func TestA22_ATokenServerThatHangsOnceIsAskedAnewByOthers(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	tokens := &tokens{}
	inner := tokens.wanted(u)
	var asked atomic.Bool
	release := make(chan struct{})
	u.auth = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" && asked.CompareAndSwap(false, true) {
			<-release
		}
		return inner(w, r)
	}
	o := calm()
	o.Connect, o.FirstByte = 5*time.Second, 5*time.Minute
	g := newRig(t, o, config(t, source+" digest "+u.host+"/m never"))
	var first sync.WaitGroup
	first.Go(func() {
		// On a busy machine, the connection may time out before the request for a token. Then the pull is repeated.
		for a := (answer{}); !a.isRight(m.layer); {
			begun := asked.Load()
			if a = g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); begun && !a.isRight(m.layer) {
				t.Error(a)
				return
			}
		}
	})
	defer first.Wait()
	defer close(release)
	eventually(t, asked.Load)
	eventually(t, func() bool { // requests for the same content wait for the first one
		ctx, cancel := context.WithTimeout(t.Context(), o.Connect+3*time.Second)
		defer cancel()
		return g.askWith(ctx, t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)).isRight(m.layer)
	})
}
