package resolver_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// restricted returns a configuration whose rules also have the cluster's settings for registries.
func restricted(tb testing.TB, s contract.RegistrySources, rules ...string) resolver.Config {
	tb.Helper()
	c := config(tb, rules...)
	var err error
	if c.Rules, err = c.Rules.Restrict(s); err != nil {
		tb.Fatal(err)
	}
	c.Roots = nil // no certificate is trusted
	return c
}

// bare serves an upstream without TLS.
func bare(tb testing.TB, u *upstream) string {
	tb.Helper()
	server := httptest.NewUnstartedServer(u)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	tb.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestAnInsecureRegistryMayHaveAnyCertificateOrNone(t *testing.T) {
	t.Parallel()
	m := newImage(1, 100_000)
	u := newUpstream(t, m)
	plain := bare(t, u)
	for name, c := range map[string]struct {
		host, repository string
		sources          contract.RegistrySources
		right            bool
	}{
		"a certificate that nobody signed": {u.host, "a", contract.RegistrySources{Insecure: []string{u.host}}, true},
		"http without TLS":                 {plain, "a", contract.RegistrySources{Insecure: []string{plain}}, true},
		"one repository": {u.host, "lab/a",
			contract.RegistrySources{Insecure: []string{u.host + "/lab"}}, true},
		"not another repository": {u.host, "a", contract.RegistrySources{Insecure: []string{u.host + "/lab"}}, false},
		"not another registry":   {plain, "a", contract.RegistrySources{Insecure: []string{u.host}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, calm(), restricted(t, c.sources))
			for range 2 {
				a := g.ask(t, http.MethodGet, c.host, c.repository+"/blobs/"+digestOf(m.layer))
				if a.isRight(m.layer) != c.right {
					t.Errorf("%v", a)
				}
			}
		})
	}
}

// A proxy in front of an insecure registry must still have a valid certificate, because the client sends the proxy's
// password to it.
func TestAnInsecureRegistryMakesNoProxyInsecure(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	for name, trusted := range map[string]bool{"trusted": true, "a certificate that nobody signed": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int64
			proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				if r.Method == http.MethodConnect && r.Header.Get("Proxy-Authorization") == basic("pu:pp") {
					tunnel(t, w, u.host)
				}
			}))
			proxy.Config.ErrorLog = log.New(io.Discard, "", 0)
			proxy.StartTLS()
			t.Cleanup(proxy.Close)
			c := restricted(t, contract.RegistrySources{Insecure: []string{u.host}})
			c.Proxy = func(*http.Request) (*url.URL, error) {
				return url.Parse(strings.Replace(proxy.URL, "https://", "https://pu:pp@", 1))
			}
			if trusted {
				c.Roots = roots(t)
			}
			a := newRig(t, calm(), c).ask(t, http.MethodGet, u.host, "a/blobs/"+digestOf(m.layer))
			if a.isRight(m.layer) != trusted || (asked.Load() > 0) != trusted {
				t.Errorf("%v; the proxy was asked %d times", a, asked.Load())
			}
		})
	}
}

func TestWhatAnInsecureRegistrySaysIsNotBelievedOfItsOtherRepositories(t *testing.T) {
	t.Parallel()
	m := newImage(2, 1000)
	u := newUpstream(t, m)
	c := restricted(t, contract.RegistrySources{Insecure: []string{u.host + "/lab"}})
	c.PullSecret = secret(t, map[string]string{u.host: "me:hunter2"})
	var got []string
	u.auth = func(w http.ResponseWriter, r *http.Request) bool {
		if login := r.Header.Get("Authorization"); login != "" {
			got = append(got, r.URL.Path)
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
	g := newRig(t, calm(), c)
	if a := g.ask(t, http.MethodGet, u.host, "lab/a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatalf("%v", a)
	}
	seen := len(got)
	if a := g.ask(t, http.MethodGet, u.host, "a/blobs/"+digestOf(m.layer)); a.status != http.StatusBadGateway ||
		len(got) != seen {
		t.Errorf("%v, %v", a, got)
	}
}

func TestACredentialOfAnInsecureRegistryGoesNowhereElse(t *testing.T) {
	t.Parallel()
	m := newImage(3, 1000)
	u, elsewhere := newUpstream(t, m), newUpstream(t, m)
	u.failing(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			http.Redirect(w, r, elsewhere.URL+r.URL.Path, http.StatusTemporaryRedirect)
			return true
		}
		return false
	})
	c := restricted(t, contract.RegistrySources{Insecure: []string{u.host}})
	c.PullSecret = secret(t, map[string]string{u.host: "me:hunter2"})
	g := newRig(t, calm(), c)
	a := g.ask(t, http.MethodGet, u.host, "a/blobs/"+digestOf(m.layer))
	if a.status != http.StatusBadGateway || len(elsewhere.seen()) > 0 {
		t.Errorf("the redirect was followed to an untrusted host: %v", a)
	}
	if r := g.report(t); len(r.Attempts) != 1 || r.Attempts[0].Reason != resolver.ReasonUntrusted {
		t.Errorf("%+v", r)
	}
}

func TestAnImageThatTheClusterRefusesIsAskedForNowhere(t *testing.T) {
	t.Parallel()
	m := newImage(4, 1000)
	for name, s := range map[string]func(host string) contract.RegistrySources{
		"blocked": func(
			host string) contract.RegistrySources {
			return contract.RegistrySources{Blocked: []string{host}}
		},
		"not allowed": func(string) contract.RegistrySources {
			return contract.RegistrySources{Restricted: true, Allowed: []string{"other.io"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, m)
			c := restricted(t, s(u.host), u.host+" tag "+u.host+"/copies")
			c.Roots = roots(t)
			g := newRig(t, calm(), c)
			a := g.ask(t, http.MethodGet, u.host, "a/manifests/latest")
			if a.status != http.StatusForbidden ||
				!strings.Contains(string(a.content), "of the Image object cluster") || len(u.seen()) > 0 {
				t.Errorf("%v; the registry was asked %d times", a, len(u.seen()))
			}
			if r := g.report(t); r.Refused == "" || !r.IsFailure() || !strings.Contains(r.Message(), "Refused: ") {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestAnIdentityTokenIsTakenByAnInsecureRegistryItself(t *testing.T) {
	t.Parallel()
	m := newImage(5, 1000)
	u := newUpstream(t, m)
	u.auth = (&tokens{refresh: "identity"}).wanted(u)
	c := restricted(t, contract.RegistrySources{Insecure: []string{u.host}})
	c.PullSecret = parseSecret(t, map[string]any{u.host: map[string]string{"identitytoken": "identity"}})
	g := newRig(t, calm(), c)
	if a := g.ask(t, http.MethodGet, u.host, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
		t.Fatal(a)
	}
}
