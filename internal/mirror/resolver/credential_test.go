package resolver_test

import (
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

func basic(user string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user))
}

// wantsBasic refuses all users except one.
func wantsBasic(user string) func(w http.ResponseWriter, r *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Header.Get("Authorization") == basic(user) {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="here"`)
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
}

// tokens is a token server at the registry's own address. Every token is valid for one repository and a limited number
// of requests.
type tokens struct {
	user    string // the user that gets a token; empty: every user
	refresh string // the identity token that gets a token
	uses    int    // how often a token can be used; 0: no limit
	forbids bool   // a used token is refused with 403

	mu      sync.Mutex
	issued  int
	left    map[string]int
	refused int
}

func (s *tokens) wanted(u *upstream) func(w http.ResponseWriter, r *http.Request) bool {
	s.left = map[string]int{}
	return func(w http.ResponseWriter, r *http.Request) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		if r.URL.Path == "/token" {
			s.issue(w, r)
			return false
		}
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		repository, _, _ := strings.Cut(given, "#")
		if left, ok := s.left[given]; ok && strings.HasPrefix(r.URL.Path, "/v2/"+repository+"/") &&
			(s.uses == 0 || left > 0) {
			s.left[given]--
			return true
		}
		s.refused++
		if s.forbids && given != "" {
			w.WriteHeader(http.StatusForbidden)
			return false
		}
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="here"`, u.URL))
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
}

func (s *tokens) issue(w http.ResponseWriter, r *http.Request) {
	scope := r.FormValue("scope")
	repository := strings.TrimSuffix(strings.TrimPrefix(scope, "repository:"), ":pull")
	switch {
	case r.FormValue("service") != "here" || repository == scope:
		w.WriteHeader(http.StatusBadRequest)
	case s.user != "" && r.Header.Get("Authorization") != basic(s.user):
		w.WriteHeader(http.StatusUnauthorized)
	case s.refresh != "" && (r.Method != http.MethodPost || r.FormValue("refresh_token") != s.refresh):
		w.WriteHeader(http.StatusUnauthorized)
	default:
		s.issued++
		token := fmt.Sprintf("%s#%d", repository, s.issued)
		s.left[token] = s.uses
		_, _ = fmt.Fprintf(w, `{"token":%q,"expires_in":300}`, token)
	}
}

func TestCredentialsOpenRegistries(t *testing.T) {
	t.Parallel()
	m := newImage(1, 100_000)
	for name, c := range map[string]struct {
		auth func(u *upstream) func(w http.ResponseWriter, r *http.Request) bool
		keys func(host string) map[string]any
		want bool
	}{
		"user and password": {func(*upstream) func(http.ResponseWriter,
			*http.Request) bool {
			return wantsBasic("u:p")
		},
			func(host string) map[string]any {
				return map[string]any{host: map[string]string{"username": "u", "password": "p"}}
			}, true},
		"of the repository before that of the host": {func(*upstream) func(http.ResponseWriter,
			*http.Request) bool {
			return wantsBasic("u:p")
		},
			func(host string) map[string]any {
				return map[string]any{host: user("no:no"), host + "/m/a": user("u:p"), host + "/m/a/b": user("no:no")}
			}, true},
		"of another host": {func(*upstream) func(http.ResponseWriter, *http.Request) bool { return wantsBasic("u:p") },
			func(string) map[string]any { return map[string]any{"other.test": user("u:p")} }, false},
		"a wrong password": {func(*upstream) func(http.ResponseWriter, *http.Request) bool { return wantsBasic("u:p") },
			func(host string) map[string]any { return map[string]any{host: user("u:q")} }, false},
		"a token server for everybody": {(&tokens{}).wanted, func(string) map[string]any { return nil }, true},
		"a token server for users": {(&tokens{user: "u:p"}).wanted,
			func(host string) map[string]any { return map[string]any{host: user("u:p")} }, true},
		"a token server for others": {(&tokens{user: "u:p"}).wanted,
			func(host string) map[string]any { return map[string]any{host: user("u:x")} }, false},
		"a token server that takes identity tokens": {(&tokens{refresh: "identity"}).wanted,
			func(host string) map[string]any {
				return map[string]any{host: map[string]string{"identitytoken": "identity"}}
			}, true},
		"tokens that end in the middle": {(&tokens{user: "u:p", uses: 2}).wanted,
			func(host string) map[string]any { return map[string]any{host: user("u:p")} }, true},
		"tokens that end in the middle, at a registry that says 403": {
			(&tokens{user: "u:p", uses: 2, forbids: true}).wanted,
			func(host string) map[string]any { return map[string]any{host: user("u:p")} }, true},
		"a registry token": {func(*upstream) func(http.ResponseWriter, *http.Request) bool {
			return func(w http.ResponseWriter, r *http.Request) bool {
				if r.Header.Get("Authorization") == "Bearer given" {
					return true
				}
				w.WriteHeader(http.StatusUnauthorized)
				return false
			}
		}, func(host string) map[string]any {
			return map[string]any{host: map[string]string{"registrytoken": "given"}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUpstream(t, m)
			u.auth = c.auth(u)
			conf := config(t, source+" tag "+u.host+"/m never")
			conf.PullSecret = parseSecret(t, c.keys(u.host))
			g := newRig(t, calm(), conf)
			if got := g.pulls(t, m, "latest"); got != c.want {
				t.Fatalf("pulled: %v, %v", got, g.Reports())
			}
			if !c.want {
				if r := g.report(t); r.Attempts[0].Reason != resolver.ReasonDenied {
					t.Error(r)
				}
			}
		})
	}
}

func user(text string) map[string]string {
	return map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(text))}
}

func TestOneTokenIsFetchedForManyLayers(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	s := &tokens{}
	u.auth = s.wanted(u)
	g := newRig(t, calm(), config(t, source+" digest "+u.host+"/m never"))
	if a := g.ask(t, http.MethodGet, source, "a/manifests/"+digestOf(m.manifest)); !a.isRight(m.manifest) {
		t.Fatal(a)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); !a.isRight(m.layer) {
				t.Error(a)
			}
		})
	}
	all.Wait()
	if s.issued != 1 || u.asked("/v2/") != 22 {
		t.Errorf("%d tokens, %d requests", s.issued, u.asked("/v2/"))
	}
}

// TestACredentialGoesNowhereElse follows a credential and a token through redirects, and checks that no other server
// receives them.
func TestACredentialGoesNowhereElse(t *testing.T) {
	t.Parallel()
	m := newImage(1, 3<<20)
	for name, where := range map[string]func(u, store *upstream, r *http.Request) string{
		"to a store": func(_, store *upstream,
			r *http.Request) string {
			return store.URL + r.URL.Path + "?signature=s3cr3t"
		},
		"to a store with a user": func(_, store *upstream,
			r *http.Request) string {
			return "https://x:y@" + store.host + r.URL.Path
		},
		"to a store by way of the host": func(u, store *upstream,
			r *http.Request) string {
			return redirectTwice(u, store, r)
		},
	} {
		for kind, auth := range map[string]func(u *upstream) func(w http.ResponseWriter, r *http.Request) bool{
			"basic": func(*upstream) func(http.ResponseWriter, *http.Request) bool { return wantsBasic("u:p") },
			"token": (&tokens{user: "u:p"}).wanted,
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				u, store := newUpstream(t, m), newUpstream(t, m)
				u.auth = auth(u)
				u.failing(func(w http.ResponseWriter, r *http.Request) bool {
					if r.URL.Host == store.host || !strings.Contains(r.URL.Path, "/blobs/") {
						return false
					}
					http.Redirect(w, r, where(u, store, r), http.StatusTemporaryRedirect)
					return true
				})
				conf := config(t, source+" digest "+u.host+"/m never")
				conf.PullSecret = secret(t, map[string]string{u.host: "u:p"})
				g := newRig(t, calm(), conf)
				for _, method := range []string{http.MethodHead, http.MethodGet} {
					if a := g.ask(t, method, source, "a/blobs/"+digestOf(m.layer)); a.status != http.StatusOK ||
						method == http.MethodGet && !a.isRight(m.layer) {
						t.Fatal(a, g.Reports())
					}
				}
				if len(store.seen()) != 2 {
					t.Errorf("the store was asked %d times", len(store.seen()))
				}
				for _, r := range store.seen() {
					if r.Header.Get("Authorization") != "" || r.Header.Get("Cookie") != "" ||
						strings.Contains(fmt.Sprint(r.Header), mirror.Authorization(token)) {
						t.Errorf("%v", r.Header)
					}
				}
			})
		}
	}
}

func redirectTwice(u, store *upstream, r *http.Request) string {
	if r.URL.Query().Get("again") == "" {
		return u.URL + r.URL.Path + "?again=" + url.QueryEscape("yes")
	}
	return store.URL + r.URL.Path
}

func TestARedirectToTheSourceIsRefusedWhenItMustNeverBeContacted(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	origin, u := newUpstream(t, m), newUpstream(t, m)
	u.failing(func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, origin.URL+r.URL.Path, http.StatusFound)
		return true
	})
	g := newRig(t, calm(), config(t, origin.host+" digest "+u.host+"/m never"))
	a := g.ask(t, http.MethodGet, origin.host, "a/blobs/"+digestOf(m.layer))
	if a.status != http.StatusBadGateway || len(origin.seen()) != 0 {
		t.Fatal(a, len(origin.seen()))
	}
}

// A mirror may redirect to a server with its content. It must not redirect to a registry that a rule forbids, in any
// spelling of the registry's name.
func TestA22_ARedirectToAnyRegistryThatMustNotBeContactedIsRefused(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	for name, spell := range map[string]func(host, port string) string{
		"as the rule has it": net.JoinHostPort,
		"port with a zero":   func(host, port string) string { return host + ":0" + port },
		"IPv4 within IPv6":   func(host, port string) string { return "[::ffff:" + host + "]:" + port },
		"with a dot":         func(host, port string) string { return host + ".:" + port },
	} {
		for _, blocked := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, blocked %t", name, blocked), func(t *testing.T) {
				t.Parallel()
				origin, u := newUpstream(t, m), newUpstream(t, m)
				host, port, err := net.SplitHostPort(origin.host)
				if err != nil {
					t.Fatal(err)
				}
				u.failing(func(w http.ResponseWriter, r *http.Request) bool {
					http.Redirect(w, r, "https://"+spell(host, port)+r.URL.Path, http.StatusTemporaryRedirect)
					return true
				})
				conf := config(t, source+" digest "+u.host+"/m never", origin.host+" tag unused.example/m never")
				if blocked {
					conf = config(t, source+" digest "+u.host+"/m never")
					if conf.Rules, err = conf.Rules.Restrict(contract.RegistrySources{
						Blocked: []string{origin.host}}); err != nil {
						t.Fatal(err)
					}
				}
				g := newRig(t, calm(), conf)
				for _, path := range []string{"a/blobs/" + digestOf(m.layer), "a/manifests/" + digestOf(m.index)} {
					a := g.ask(t, http.MethodGet, source, path)
					if a.status != http.StatusBadGateway || len(origin.seen()) != 0 {
						t.Fatal(a, len(origin.seen()))
					}
					if r := g.report(t); r.Attempts[0].Reason != resolver.ReasonForbidden {
						t.Error(r)
					}
				}
			})
		}
	}
}

// A mirror names its token server, and may redirect the request whose answer tells how to authenticate. Neither may
// lead to a registry that a rule forbids, even if the rule is about another image.
func TestA22_AMirrorSendsNobodyToASourceThatMustNeverBeContacted(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	for name, challenge := range map[string]func(w http.ResponseWriter, r *http.Request, origin string){
		"for a token, with a zero in the port": func(w http.ResponseWriter, _ *http.Request, origin string) {
			origin = origin[:strings.LastIndexByte(origin, ':')] + ":0" + origin[strings.LastIndexByte(origin, ':')+1:]
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="here"`, origin))
			w.WriteHeader(http.StatusUnauthorized)
		},
		"for a token": func(w http.ResponseWriter, _ *http.Request, origin string) {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="here"`, origin))
			w.WriteHeader(http.StatusUnauthorized)
		},
		"to learn how to authenticate": func(w http.ResponseWriter, r *http.Request, origin string) {
			http.Redirect(w, r, origin+r.URL.Path, http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin, u := newUpstream(t, m), newUpstream(t, m)
			u.auth = func(w http.ResponseWriter, r *http.Request) bool {
				challenge(w, r, origin.URL)
				return false
			}
			conf := config(t, source+" digest "+u.host+"/m never", origin.host+" tag unused.example/m never")
			conf.PullSecret = secret(t, map[string]string{u.host: "u:p"})
			g := newRig(t, calm(), conf)
			a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer))
			if a.status != http.StatusBadGateway || len(origin.seen()) != 0 {
				t.Fatal(a, len(origin.seen()))
			}
			if r := g.report(t); r.Attempts[0].Reason != resolver.ReasonForbidden {
				t.Error(r)
			}
		})
	}
}

// TestATokenServerDoesNotRedirect checks that a redirect with 307 does not pass on an identity token in the request's
// body.
func TestATokenServerDoesNotRedirect(t *testing.T) {
	t.Parallel()
	thief, u := newUpstream(t), newUpstream(t, newImage(1, 10))
	u.auth = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/token" {
			http.Redirect(w, r, thief.URL+"/token", http.StatusTemporaryRedirect)
		} else {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="here"`, u.URL))
			w.WriteHeader(http.StatusUnauthorized)
		}
		return false
	}
	for name, entry := range map[string]map[string]string{"identity token": {"identitytoken": "identity"},
		"user": user("u:p")} {
		conf := config(t, source+" tag "+u.host+"/m never")
		conf.PullSecret = parseSecret(t, map[string]any{u.host: entry})
		g := newRig(t, calm(), conf)
		if a := g.ask(t, http.MethodGet, source, "a/manifests/latest"); a.status != http.StatusBadGateway {
			t.Fatal(name, a)
		}
		if r := g.report(t); r.Attempts[0].Reason != resolver.ReasonForbidden {
			t.Error(name, r)
		}
	}
	if len(thief.seen()) != 0 {
		t.Error("the redirect's target was asked")
	}
}

// TestNothingSecretIsSaid makes every request with a secret fail, and searches all messages for the secret.
func TestNothingSecretIsSaid(t *testing.T) {
	t.Parallel()
	secrets := []string{"sup3rs3cret", basic("u:sup3rs3cret"), "s1gn3d", token, mirror.Authorization(token)}
	var said lines
	logger := logr.FromSlogHandler(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.Level(-10)}))
	for name, fault := range map[string]faultFunc{
		"a signed address that breaks off": func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("x") != "" {
				panic(http.ErrAbortHandler)
			}
			http.Redirect(w, r, r.URL.Path+"?x=s1gn3d", http.StatusFound)
			return true
		},
		"a signed address at a dead host": func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "https://127.0.0.1:1/x?x=s1gn3d", http.StatusFound)
			return true
		},
		"an answer that repeats the request": func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":"X","message":%q}]}`, r.Header.Get("Authorization"))
			return true
		},
	} {
		u := newUpstream(t)
		u.auth = wantsBasic("u:sup3rs3cret")
		u.failing(fault)
		conf := config(t, source+" tag "+u.host+"/m never")
		conf.PullSecret = secret(t, map[string]string{u.host: "u:sup3rs3cret"})
		conf.Proxy = func(r *http.Request) (*url.URL, error) {
			if r.URL.Port() == "1" {
				return url.Parse("http://u:sup3rs3cret@127.0.0.1:2")
			}
			return nil, nil
		}
		g := newRig(t, calm(), conf)
		recorder := httptest.NewRecorder()
		request := httptest.NewRequestWithContext(logr.NewContext(t.Context(), logger), http.MethodGet,
			"/v2/a/manifests/latest?ns="+source, nil)
		request.Header.Set(mirror.TokenHeader, mirror.Authorization(token))
		g.ServeHTTP(recorder, request)
		r := g.report(t)
		_, _ = fmt.Fprintf(&said, "%s %s %+v %v %d %v", recorder.Body, r.Message(), r, recorder.Header(), recorder.Code,
			conf)
		if recorder.Code < 400 {
			t.Error(name, recorder.Code)
		}
	}
	for _, one := range secrets {
		if strings.Contains(said.String(), one) {
			t.Errorf("a message has the secret %s: %s", one, said.String())
		}
	}
	if !strings.Contains(said.String(), "pull failed") {
		t.Error("nothing was logged")
	}
}

// lines is a writer that several goroutines can use.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func TestCertificatesAreChecked(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	pull := func(c resolver.Config) answer {
		g := newRig(t, calm(), c)
		return g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer))
	}
	c := config(t, source+" digest "+u.host+"/m never")
	if a := pull(c); !a.isRight(m.layer) {
		t.Fatal(a)
	}
	trusted := c.Roots
	c.Roots = nil
	if a := pull(c); a.status != http.StatusBadGateway ||
		!strings.Contains(string(a.content), "Untrusted (certificate signed by unknown authority)") {
		t.Fatal(a)
	}
	c.RegistryTrust = map[string]string{"127.0.0.1": pem(u), "other.test:5000": pem(u)}
	if a := pull(c); a.status != http.StatusBadGateway {
		t.Fatal("a certificate of another registry's CA was accepted", a)
	}
	c.RegistryTrust = map[string]string{u.host: "garbage\n" + pem(u) + "\ngarbage"}
	if a := pull(c); !a.isRight(m.layer) {
		t.Fatal(a)
	}
	// The certificate must be for the registry's name.
	_, port, _ := strings.Cut(u.host, ":")
	c = config(t, source+" digest localhost:"+port+"/m never")
	c.Roots = trusted
	if a := pull(c); a.status != http.StatusBadGateway ||
		!strings.Contains(string(a.content), "Untrusted (certificate is for another name)") {
		t.Fatal(a)
	}
	// The resolver must not use plain HTTP.
	plain := httptest.NewServer(u)
	defer plain.Close()
	c = config(t, source+" digest "+strings.TrimPrefix(plain.URL, "http://")+"/m never")
	if a := pull(c); a.status != http.StatusBadGateway || !strings.Contains(string(a.content), "Untrusted (it does "+
		"not speak TLS)") {
		t.Fatal(a)
	}
}

func TestRequestsTakeTheProxy(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Method != http.MethodConnect || r.Host != "mirror.test:443" ||
			r.Header.Get("Proxy-Authorization") != basic("pu:pp") {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		tunnel(t, w, u.host)
	}))
	defer proxy.Close()
	// The certificate of httptest is for example.com.
	c := config(t, source+" digest mirror.test/m example.com/m never")
	c.Proxy = func(*http.Request) (*url.URL, error) {
		return url.Parse("http://pu:pp@" + strings.TrimPrefix(proxy.URL, "http://"))
	}
	g := newRig(t, calm(), c)
	a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer))
	if asked.Load() != 2 || !strings.Contains(string(a.content),
		"example.com/m/a: Unreachable (the proxy says status 400)") {
		t.Error(asked.Load(), a)
	}
	if a.status != http.StatusBadGateway || !strings.Contains(string(a.content), "mirror.test/m/a: Untrusted "+
		"(certificate is for another name)") {
		t.Fatal(asked.Load(), a)
	}
}

// The proxy is down, not the registries. The message must not blame the registries or their certificates.
func TestAProxyThatIsDownIsNamed(t *testing.T) {
	t.Parallel()
	foreign := newUpstream(t)
	for name, test := range map[string]struct{ proxy, says string }{
		"no proxy listens":         {"http://" + deadHost(t), "the proxy: connection refused"},
		"unknown name":             {"http://proxy.invalid:3128", "the proxy: name does not resolve"},
		"an unknown certificate":   {foreign.URL, "the proxy: certificate signed by unknown authority"},
		"no TLS where it is asked": {"https://" + bare(t, foreign), "the proxy: it does not speak TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := config(t, source+" digest mirror.test/m never")
			c.Roots = x509.NewCertPool()
			c.Proxy = func(*http.Request) (*url.URL, error) { return url.Parse(test.proxy) }
			a := newRig(t, calm(), c).ask(t, http.MethodGet, source, "a/blobs/"+digestOf([]byte("x")))
			if !strings.Contains(string(a.content), "mirror.test/m/a: Unreachable ("+test.says+")") {
				t.Error(a)
			}
		})
	}
}

// tunnel answers a CONNECT request, and connects its client to an address.
func tunnel(t *testing.T, w http.ResponseWriter, to string) {
	t.Helper()
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	server, err := dial(to)
	if err != nil {
		t.Error(err)
		return
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(server, buffered)
		_ = server.Close()
	}()
	_, _ = io.Copy(client, server)
	_ = client.Close()
	<-done
}

// The target of a redirect may belong to anyone. It must not decide where the pull secret is sent.
func TestTheTargetOfARedirectNamesNoTokenServer(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	thief, u := newUpstream(t, m), newUpstream(t, m)
	thief.auth = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="here"`, thief.URL))
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
	u.failing(func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, thief.URL+r.URL.Path, http.StatusTemporaryRedirect)
		return true
	})
	conf := config(t, source+" digest "+u.host+"/m never")
	conf.PullSecret = secret(t, map[string]string{u.host: "u:p"})
	g := newRig(t, calm(), conf)
	if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digestOf(m.layer)); a.status == http.StatusOK {
		t.Error(a)
	}
	if thief.asked("/v2/") == 0 {
		t.Error("the redirect was not followed, so the test shows nothing")
	}
	for _, r := range thief.seen() {
		if r.URL.Path == "/token" || r.Header.Get("Authorization") != "" {
			t.Errorf("%s got %q", r.URL, r.Header.Get("Authorization"))
		}
	}
}

// This registry asks for a token only at its repositories. So the resolver learns only there that the token server
// has moved.
func TestATokenServerThatMovesIsFound(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	var at atomic.Value
	u.auth = func(w http.ResponseWriter, r *http.Request) bool {
		realm, _ := at.Load().(string)
		switch {
		case r.URL.Path == "/v2/", r.Header.Get("Authorization") == "Bearer "+realm:
			return true
		case r.URL.Path == "/"+realm:
			_, _ = fmt.Fprintf(w, `{"token":%q,"expires_in":300}`, realm)
		case strings.HasPrefix(r.URL.Path, "/v2/"):
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/%s",service="here"`, u.URL, realm))
			w.WriteHeader(http.StatusUnauthorized)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
		return false
	}
	conf := config(t, source+" digest "+u.host+"/m never")
	conf.PullSecret = secret(t, map[string]string{u.host: "u:p"})
	g := newRig(t, calm(), conf)
	for _, realm := range []string{"old", "new"} {
		at.Store(realm)
		for _, digest := range []string{digestOf(m.layer), digestOf(m.config)} {
			if a := g.ask(t, http.MethodGet, source, "a/blobs/"+digest); a.status != http.StatusOK {
				t.Error(realm, a)
			}
		}
	}
}

func TestAnAnswerWithHeadersWithoutEndIsRefused(t *testing.T) {
	t.Parallel()
	m := newImage(1, 1000)
	u := newUpstream(t, m)
	u.auth = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("X-Long", strings.Repeat("x", 100_000))
		return true
	}
	g := newRig(t, calm(), config(t, source+" tag "+u.host+"/m never"))
	if a := g.ask(t, http.MethodGet, source, "a/manifests/latest"); a.status != http.StatusBadGateway {
		t.Errorf("the pull returned %v", a)
	}
}
