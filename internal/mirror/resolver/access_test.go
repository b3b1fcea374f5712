package resolver_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// plainly calls the resolver's handler with exactly these headers.
func plainly(t *testing.T, g *rig, method, pathAndQuery string, header http.Header) answer {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, g.url+pathAndQuery, nil)
	request.RequestURI = ""
	request.Header = header
	recorder := httptest.NewRecorder()
	g.ServeHTTP(recorder, request)
	return answer{status: recorder.Code, header: recorder.Header(), content: recorder.Body.Bytes()}
}

func TestOnlyWhoHasTheTokenIsAnswered(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, newImage(1, 10))
	g := newRig(t, calm(), config(t, source+" tag "+u.host+"/m"))
	for name, header := range map[string]http.Header{
		"no token":        {},
		"an empty one":    {mirror.TokenHeader: {""}},
		"another":         {mirror.TokenHeader: {mirror.Authorization(token + "0")}},
		"part of it":      {mirror.TokenHeader: {mirror.Authorization(token[:19])}},
		"it, but twice":   {mirror.TokenHeader: {mirror.Authorization(token), mirror.Authorization(token)}},
		"as a credential": {"Authorization": {"Bearer " + token}},
		"by itself":       {mirror.TokenHeader: {token}},
		"as before":       {"X-Wmco-Resolver-Token": {token}},
	} {
		for _, path := range []string{"/v2/", "/v2/a/manifests/latest?ns=" + source, "/", "/metrics"} {
			a := plainly(t, g, http.MethodGet, path, header)
			if a.status != http.StatusForbidden || a.header.Get("WWW-Authenticate") != "" ||
				strings.Contains(string(a.content), "token") {
				t.Errorf("%s, %s: %v %v", name, path, a, a.header)
			}
		}
	}
	if len(u.seen()) != 0 {
		t.Error("a mirror was asked")
	}
}

func TestOnlyPullsAreAnswered(t *testing.T) {
	t.Parallel()
	m := newImage(1, 10)
	u := newUpstream(t, m)
	g := newRig(t, calm(), config(t, source+" tag "+u.host+"/m"))
	known := "sha256:" + strings.Repeat("a", 64)
	for name, c := range map[string]struct {
		method, path string
		want         int
	}{
		"ping":                          {"GET", "/v2/", 200},
		"ping with HEAD":                {"HEAD", "/v2/", 200},
		"push of a manifest":            {"PUT", "/v2/a/manifests/latest?ns=" + source, 405},
		"deletion":                      {"DELETE", "/v2/a/manifests/latest?ns=" + source, 405},
		"post to a blob":                {"POST", "/v2/a/blobs/" + known + "?ns=" + source, 405},
		"upload":                        {"POST", "/v2/a/blobs/uploads/?ns=" + source, 404},
		"list of tags":                  {"GET", "/v2/a/tags/list?ns=" + source, 404},
		"catalog":                       {"GET", "/v2/_catalog?ns=" + source, 404},
		"referrers":                     {"GET", "/v2/a/referrers/" + known + "?ns=" + source, 404},
		"version 1":                     {"GET", "/v1/a/manifests/latest?ns=" + source, 404},
		"no version":                    {"GET", "/?ns=" + source, 404},
		"no namespace":                  {"GET", "/v2/a/manifests/latest", 400},
		"an empty namespace":            {"GET", "/v2/a/manifests/latest?ns=", 400},
		"two namespaces":                {"GET", "/v2/a/manifests/latest?ns=a.b&ns=c.d", 400},
		"a namespace with a path":       {"GET", "/v2/a/manifests/latest?ns=a.b/c", 400},
		"a namespace with a user":       {"GET", "/v2/a/manifests/latest?ns=u@a.b", 400},
		"a namespace with a scheme":     {"GET", "/v2/a/manifests/latest?ns=https://a.b", 400},
		"a namespace with a line break": {"GET", "/v2/a/manifests/latest?ns=a.b%0d%0aX:y", 400},
		"a namespace with port 0":       {"GET", "/v2/a/manifests/latest?ns=a.b:0", 400},
		"a broken query":                {"GET", "/v2/a/manifests/latest?ns=a.b&x=%zz", 400},
		"no repository":                 {"GET", "/v2/manifests/latest?ns=" + source, 404},
		"a repository in capitals":      {"GET", "/v2/A/manifests/latest?ns=" + source, 400},
		"a repository with dots":        {"GET", "/v2/a/../b/manifests/latest?ns=" + source, 400},
		"an escaped slash":              {"GET", "/v2/a%2fb/manifests/latest?ns=" + source, 404},
		"a blob by tag":                 {"GET", "/v2/a/blobs/latest?ns=" + source, 400},
		"a digest in capitals":          {"GET", "/v2/a/manifests/" + strings.ToUpper(known) + "?ns=" + source, 400},
		"a short digest":                {"GET", "/v2/a/manifests/sha256:abc?ns=" + source, 400},
		"another algorithm": {"GET", "/v2/a/manifests/md5:" + strings.Repeat("a", 32) + "?ns=" + source,
			400},
		"a tag with a slash":        {"GET", "/v2/a/manifests/x/?ns=" + source, 404},
		"a manifest":                {"GET", "/v2/a/manifests/latest?ns=" + source, 200},
		"of a registry in capitals": {"GET", "/v2/a/manifests/latest?ns=" + strings.ToUpper(source), 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := plainly(t, g, c.method, c.path, http.Header{mirror.TokenHeader: {mirror.Authorization(token)}})
			if a.status != c.want {
				t.Fatal(a)
			}
			if a.status >= 400 && !strings.HasPrefix(string(a.content), `{"errors":[{"code":"`) {
				t.Errorf("%s", a.content)
			}
		})
	}
}

func TestNothingIsAnsweredBeforeTheRulesAreKnown(t *testing.T) {
	t.Parallel()
	r := resolver.New(calm())
	recorder := httptest.NewRecorder()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v2/a/manifests/latest?ns="+source, nil)
	request.Header.Set(mirror.TokenHeader, mirror.Authorization(token))
	r.ServeHTTP(recorder, request)
	if recorder.Code != http.StatusServiceUnavailable {
		t.Error(recorder.Code)
	}
}

func TestOnlyLoopbackIsServed(t *testing.T) {
	t.Parallel()
	r := resolver.New(calm())
	for _, address := range []string{"0.0.0.0:0", ":0"} {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Serve(t.Context(), listener); err == nil ||
			!strings.Contains(err.Error(), "is not a loopback address") {
			t.Errorf("%s: %v", address, err)
		}
		if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s is still open: %v", address, err)
		}
	}
}

func TestServeSaysWhenItsListenerFails(t *testing.T) {
	t.Parallel()
	r := resolver.New(calm())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = listener.Close()
	if err := r.Serve(context.Background(), listener); err == nil {
		t.Error("no error")
	}
}

func TestWhoGoesAwayIsGoneUpstreamToo(t *testing.T) {
	t.Parallel()
	m := newImage(1, 3<<20)
	var gone atomic.Bool
	u := newUpstream(t, m)
	u.failing(func(_ http.ResponseWriter, r *http.Request) bool {
		<-r.Context().Done()
		gone.Store(true)
		panic(http.ErrAbortHandler)
	})
	g := newRig(t, calm(), config(t, source+" digest "+u.host+"/m never"))
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan answer, 1)
	go func() { answered <- g.askWith(ctx, t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)) }()
	eventually(t, func() bool { return u.asked("blobs") == 1 })
	cancel()
	eventually(t, gone.Load)
	if a := <-answered; a.err == nil {
		t.Error(a)
	}
	// A request that its client cancelled must not count as a failure of the mirror.
	u.failing(nil)
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatal(a)
	}
	if r := g.Reports(); len(r) != 0 {
		t.Errorf("%+v", r)
	}
}
