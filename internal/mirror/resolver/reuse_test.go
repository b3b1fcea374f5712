package resolver_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// TestConnectionsAreUsedAgain counts handshakes: after a correct answer, the connection must be used again.
func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	m := newImage(1, 3<<20)
	u := newUpstream(t, m)
	var opened atomic.Int64
	counted := httptest.NewUnstartedServer(u)
	counted.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	counted.StartTLS()
	t.Cleanup(counted.Close)
	host := strings.TrimPrefix(counted.URL, "https://")
	g := newRig(t, calm(), config(t, source+" digest "+host+"/m never", source+" tag "+host+"/m never"))
	for range 3 {
		if !g.pulls(t, m, "latest") {
			t.Fatal("the pull failed")
		}
		g.ask(t, http.MethodGet, source, "a/manifests/no-such-tag")
		g.ask(t, http.MethodHead, source, "a/blobs/"+digestOf(m.layer))
		g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer), "Range", "bytes=1000-")
	}
	if opened.Load() != 1 {
		t.Errorf("%d connections", opened.Load())
	}
}
