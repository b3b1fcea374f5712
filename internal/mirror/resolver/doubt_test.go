package resolver_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// named asks for an image's manifest, as containerd does before it asks for a layer.
func (g *rig) named(t *testing.T, m image) {
	t.Helper()
	if a := g.ask(t, http.MethodGet, source, "a/manifests/"+digestOf(m.manifest)); !a.isRight(m.manifest) {
		t.Fatal(a)
	}
}

// between is a node that knows an image's manifest, and two mirrors of it, the first of which gives
// wrong bytes.
func between(t *testing.T) (g *rig, m image, lying, other *upstream) {
	t.Helper()
	m = newImage(4, 5<<20)
	lying, other = newUpstream(t, m), newUpstream(t, m)
	g = newRig(t, calm(), config(t, source+" digest "+lying.host+"/m "+other.host+"/n never"))
	g.named(t, m)
	lying.failing(changed(lying))
	return g, m, lying, other
}

// containerd finds out that the first answer is wrong, and asks again.
func TestA22_WhoAsksAgainForALayerGetsItFromAnotherMirror(t *testing.T) {
	t.Parallel()
	g, m, lying, _ := between(t)
	path := "a/blobs/" + digestOf(m.layer)
	if a := g.ask(t, http.MethodGet, source, path); a.err != nil || a.isRight(m.layer) {
		t.Fatal("the first answer is not hashed while it flows:", a)
	}
	if a := g.ask(t, http.MethodGet, source, path); !a.isRight(m.layer) {
		t.Fatal(a)
	}
	if n := lying.asked("blobs"); n != 1 {
		t.Errorf("the mirror that gave wrong bytes was asked %d times", n)
	}
}

// hasty is a client that asks again as soon as it has the last byte, before whoever wrote that goes
// on.
type hasty struct {
	*httptest.ResponseRecorder
	left     int
	askAgain func()
}

func (h *hasty) SetWriteDeadline(time.Time) error { return nil }

func (h *hasty) Write(content []byte) (int, error) {
	n, err := h.ResponseRecorder.Write(content)
	if h.left -= n; h.left == 0 && n > 0 {
		h.askAgain()
	}
	return n, err
}

func TestA22_WhoAsksAgainAtOnceGetsItFromAnotherMirrorToo(t *testing.T) {
	t.Parallel()
	g, m, lying, _ := between(t)
	path := "a/blobs/" + digestOf(m.layer)
	again := 0
	h := &hasty{ResponseRecorder: httptest.NewRecorder(), left: len(m.layer), askAgain: func() {
		again++
		if a := g.ask(t, http.MethodGet, source, path); !a.isRight(m.layer) {
			t.Error(a)
		}
	}}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v2/"+path+"?ns="+url.QueryEscape(source),
		http.NoBody)
	request.RemoteAddr = "127.0.0.1:1"
	request.Header.Set(mirror.TokenHeader, mirror.Authorization(token))
	g.ServeHTTP(h, request)
	if again != 1 || lying.asked("blobs") != 1 {
		t.Errorf("it asked again %d times, and the mirror that gave wrong bytes was asked %d times", again,
			lying.asked("blobs"))
	}
}

func TestA22_WrongBytesNeverLookCompleteTwice(t *testing.T) {
	t.Parallel()
	g, m, lying, other := between(t)
	path := "a/blobs/" + digestOf(m.layer)
	other.failing(changed(other))
	if a := g.ask(t, http.MethodGet, source, path); a.err != nil {
		t.Fatal(a)
	}
	for i := range 3 {
		if a := g.ask(t, http.MethodGet, source, path); a.err == nil {
			t.Fatalf("answer %d looked complete: %v", i+2, a)
		}
	}
	reports := g.Reports()
	if len(reports) == 0 || reports[0].Attempts[0].Reason != resolver.ReasonWrongContent {
		t.Errorf("reports %+v", reports)
	}
	lying.failing(nil)
	if a := g.ask(t, http.MethodGet, source, path); !a.isRight(m.layer) {
		t.Fatal(a)
	}
}

// Who asks again for another reason, such as a full disk, gets it from the same mirror, and never
// from the source while a mirror is left.
func TestA22_WhoAsksAgainForWhatWasRightGetsIt(t *testing.T) {
	t.Parallel()
	m := newImage(4, 5<<20)
	path := "a/blobs/" + digestOf(m.layer)
	u, origin := newUpstream(t, m), newUpstream(t, m)
	now := time.Now()
	o := calm()
	o.Now = func() time.Time { return now }
	g := newRig(t, o, config(t, origin.host+" digest "+u.host+"/m"))
	ask := func(path string, content []byte) {
		t.Helper()
		if a := g.ask(t, http.MethodGet, origin.host, path); !a.isRight(content) {
			t.Fatal(a)
		}
	}
	ask("a/manifests/"+digestOf(m.manifest), m.manifest)
	for range 3 {
		ask(path, m.layer)
	}
	now = now.Add(time.Hour)
	ask(path, m.layer)
	if n := u.asked("blobs"); n != 4 {
		t.Errorf("the mirror was asked %d times", n)
	}
	if n := origin.asked("blobs"); n != 0 {
		t.Errorf("the source was asked %d times", n)
	}
	if reports := g.Reports(); len(reports) > 0 {
		t.Errorf("reports %+v", reports)
	}
}
