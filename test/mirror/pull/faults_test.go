package pull_test

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	"github.com/sirupsen/logrus"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
)

// TestA22_APodsOwnPullSecretsWorkWhereHostsTomlNamesOnlyTheResolver pulls images that only the pod has credentials for.
// It covers each reason why containerd can't contact the registry itself. The pull must succeed, and the mirror must
// not see the pod's credentials.
func TestA22_APodsOwnPullSecretsWorkWhereHostsTomlNamesOnlyTheResolver(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]settings{
		"another repository is never contacted": {rules: []string{source + "/other tag m1.test never"}},
		"another repository is blocked": {sources: &contract.RegistrySources{
			Blocked: []string{source + "/evil"}}},
		"only a namespace is allowed": {sources: &contract.RegistrySources{Restricted: true,
			Allowed: []string{source + "/team"}}},
		"only a domain is allowed": {sources: &contract.RegistrySources{Restricted: true,
			Allowed: []string{"*.test"}}},
		"an unrelated wildcard is blocked": {sources: &contract.RegistrySources{
			Blocked: []string{"*.evil.example"}}},
		"it has a mirror of its own": {rules: []string{source + " tag m1.test", source + "/other tag m1.test never"}},
	} {
		for access, auth := range map[string]func(*testing.T, *network, string) (configuration.Auth, string){
			"users": withUsers, "tokens": withTokens,
		} {
			for _, kind := range []string{"tag", "digest"} {
				t.Run(name+", "+access+", by "+kind, func(t *testing.T) {
					t.Parallel()
					n := newNetwork(t)
					image := newImage(t, 2<<20)
					var shown sync.Map
					newRegistry(t, n, "m1.test", open).failing(func(w http.ResponseWriter, r *http.Request,
						real http.Handler) {
						shown.Store(r.Header.Get("Authorization"), true)
						real.ServeHTTP(w, r)
					})
					origin := newRegistry(t, n, source, auth).push(t, "team/app", image)
					d := newNode(t, n)
					d.apply(t, s)
					reference := source + "/team/app:v1"
					if kind == "digest" {
						reference = source + "/team/app@" + digestOf(t, image)
					}
					d.pod = origin.user
					d.mustPull(t, reference)
					if d.said() != "" && !strings.Contains(d.said(), "Pulled") || strings.Contains(d.said(), "Can't") {
						t.Error("an event or log line reports the image as unavailable:", d.said())
					}
					shown.Range(func(key, _ any) bool {
						if key != "" {
							t.Errorf("the mirror received the credentials %v", key)
						}
						return true
					})
					for _, pod := range []string{"", "somebody:else"} { // without credentials, the pull fails
						d.forget(t)
						d.pod = pod
						d.mustFail(t, reference)
					}
					if !strings.Contains(d.said(), "Can't pull") {
						t.Error(d.said())
					}
				})
			}
		}
	}
}

// TestA22_APodsOwnPullSecretGoesBeforeTheClusters pulls an image whose registry refuses the cluster's pull secret. The
// pull must use the pod's own pull secret.
func TestA22_APodsOwnPullSecretGoesBeforeTheClusters(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	origin := newRegistry(t, n, source, withUsers).push(t, "team/app", newImage(t, 1000))
	d := newNode(t, n)
	d.apply(t, settings{rules: []string{source + "/other tag m1.test never"},
		users: map[string]string{source: "user-of-" + source + ":old"}})
	d.pod = origin.user
	d.mustPull(t, source+"/team/app:v1")
}

// TestA22_AStatusThatPassesCostsNoPull uses a busy registry: it answers the first request for each path with a
// temporary error. The pull must succeed.
func TestA22_AStatusThatPassesCostsNoPull(t *testing.T) {
	t.Parallel()
	for _, status := range []int{http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusInternalServerError,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			image := newImage(t, 2<<20)
			var seen sync.Map
			newRegistry(t, n, "m1.test", open).push(t, "team/app",
				image).failing(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
				if _, again := seen.LoadOrStore(r.Method+r.URL.Path, true); !again {
					w.Header().Set("Retry-After", "1")
					w.WriteHeader(status)
					return
				}
				real.ServeHTTP(w, r)
			})
			d := newNode(t, n)
			d.apply(t, settings{rules: []string{source + "/team tag m1.test/team never"}})
			d.mustPull(t, source+"/team/app:v1")
		})
	}
}

// TestA22_ARefusedPullByDigestLeavesAPullByTagAlone pulls an image by tag. During the transfer of its layers, the same
// image is requested by digest, for which there is no mirror. The pull by digest must fail, and the pull by tag must
// succeed.
func TestA22_ARefusedPullByDigestLeavesAPullByTagAlone(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	image := newImage(t, 2<<20)
	// A separate node, so that the second pull doesn't find the content of the first in containerd's store.
	other := newNode(t, n)
	d := newNode(t, n)
	var once sync.Once
	newRegistry(t, n, "m1.test", open).push(t, "team/app",
		image).failing(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		// This is a manifest below the index. Its layers are requested later.
		if strings.Contains(r.URL.Path, "/manifests/sha256:") && !strings.HasSuffix(r.URL.Path, digestOf(t, image)) {
			once.Do(func() {
				other.root = d.root
				other.url = d.url
				if err := other.pull(r.Context(), source+"/team/app@"+digestOf(t, image)); err == nil {
					t.Error("the pull by digest succeeded, but it must fail")
				}
			})
		}
		real.ServeHTTP(w, r)
	})
	d.apply(t, settings{rules: []string{source + "/team tag m1.test/team never"}})
	d.mustPull(t, source+"/team/app:v1")
}

// TestA22_ContainerdsDebugLogDoesNotHaveTheResolversToken searches containerd's complete debug log for the resolver's
// token and the user's password.
func TestA22_ContainerdsDebugLogDoesNotHaveTheResolversToken(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	origin := newRegistry(t, n, source, withUsers).push(t, "team/app", newImage(t, 1000))
	d := newNode(t, n)
	var written bytes.Buffer
	logger := logrus.New()
	logger.SetOutput(&written)
	logger.SetLevel(logrus.TraceLevel)
	d.log = logrus.NewEntry(logger)
	d.apply(t, settings{rules: []string{source + "/other tag m1.test never"}})
	d.pod = origin.user
	d.mustPull(t, source+"/team/app:v1")
	_, password, _ := strings.Cut(origin.user, ":")
	for _, secret := range []string{resolverToken, base64.RawStdEncoding.EncodeToString([]byte(resolverToken))[:20],
		base64.StdEncoding.EncodeToString([]byte("containerd:" + resolverToken)), password} {
		if strings.Contains(written.String(), secret) {
			t.Errorf("containerd's log contains %s", secret)
		}
	}
	if !strings.Contains(written.String(), "do request") {
		t.Error("containerd logged nothing, so this test can't fail")
	}
}

// TestA22_ATokenServerMayHaveAPrivateAddress pulls with a token server at a private address, as registries behind
// firewalls have. The pull must succeed.
func TestA22_ATokenServerMayHaveAPrivateAddress(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	m := newRegistry(t, n, "10.1.2.3:5000", open)
	m.push(t, "team/app", newImage(t, 1000))
	app := m.app
	m.app = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "Bearer given" {
			app.ServeHTTP(w, r)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="https://10.1.2.4:5001/token",service="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	n.serve(t, "10.1.2.4:5001", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); ok && user+":"+password == "u:p" {
			_, _ = w.Write([]byte(`{"token":"given"}`))
		} else {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	d := newNode(t, n)
	d.apply(t, settings{rules: []string{source + " tag 10.1.2.3:5000 never"},
		users: map[string]string{"10.1.2.3:5000": "u:p"}})
	d.mustPull(t, source+"/team/app:v1")
}

// TestA22_ATokenServerIsNotAServiceOfTheNodeOrItsCloud uses registries that name a loopback or metadata address as
// their token server. The resolver must not send credentials there.
func TestA22_ATokenServerIsNotAServiceOfTheNodeOrItsCloud(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"169.254.169.254", "127.0.0.1:8443", "localhost:8443"} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			var asked atomic.Int64
			n.serve(t, address, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
			n.serve(t, "m1.test", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="https://`+address+`/token",service="x"`)
				w.WriteHeader(http.StatusUnauthorized)
			}))
			d := newNode(t, n)
			d.apply(t, settings{rules: []string{source + "/team tag m1.test/team never"}})
			d.mustFail(t, source+"/team/app:v1")
			if asked.Load() > 0 || !strings.Contains(d.said(), "Forbidden") {
				t.Error(asked.Load(), d.said())
			}
		})
	}
}

// TestA22_TricklingLayersLeaveOtherRegistriesAlone uses a mirror that sends its layers one byte at a time. The resolver
// must give up on this mirror, and must pull the layers from the next mirror.
func TestA22_TricklingLayersLeaveOtherRegistriesAlone(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	image := newImage(t, 2<<20)
	trickling := func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			real.ServeHTTP(w, r)
			return
		}
		whole := &recorder{header: w.Header()}
		real.ServeHTTP(whole, r)
		if whole.body.Len() < 1<<20 {
			_, _ = w.Write(whole.body.Bytes())
			return
		}
		w.WriteHeader(http.StatusOK)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for _, b := range whole.body.Bytes() {
			if _, err := w.Write([]byte{b}); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-tick.C:
			}
		}
	}
	slow := newRegistry(t, n, "m1.test", open).push(t, "team/app", image).failing(trickling)
	newRegistry(t, n, "m2.test", open).push(t, "team/app", image)
	d := newNodeWith(t, n, resolver.Options{FirstByte: 20 * time.Second, Stall: 2 * time.Second})
	d.apply(t, settings{rules: []string{source + " tag m1.test m2.test never"}})
	d.mustPull(t, source+"/team/app:v1")
	if slow.asked("/blobs/") == 0 || !strings.Contains(d.said(), "m1.test/team/app: BrokenOff") {
		t.Error(d.said())
	}
}

// TestA22_ABlockedTagIsBlocked blocks a single image by tag or digest. All pulls from its repository must fail, and
// other repositories must still work.
func TestA22_ABlockedTagIsBlocked(t *testing.T) {
	t.Parallel()
	for _, entry := range []string{source + "/evil/app:v1", source + "/evil/app@sha256:" + strings.Repeat("a", 64)} {
		n := newNetwork(t)
		image := newImage(t, 1000)
		newRegistry(t, n, source, open).push(t, "evil/app", image).push(t, "team/app", image)
		d := newNode(t, n)
		d.apply(t, settings{sources: &contract.RegistrySources{Blocked: []string{entry}}})
		d.mustFail(t, source+"/evil/app:v1")
		d.mustFail(t, source+"/evil/app@"+digestOf(t, image))
		d.mustPull(t, source+"/team/app:v1")
	}
}

// TestA22_AnInsecureRegistryMayRedirectToItselfByHTTP uses an insecure registry that redirects requests for layers to
// its own HTTP address. The pull must succeed.
func TestA22_AnInsecureRegistryMayRedirectToItselfByHTTP(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	r := newRegistry(t, n, "lab.test:5000", open).push(t, "team/app", newImage(t, 2<<20))
	r.failing(func(w http.ResponseWriter, request *http.Request, real http.Handler) {
		if strings.Contains(request.URL.Path, "/blobs/") && request.URL.RawQuery != "there" {
			http.Redirect(w, request, "http://lab.test:5000"+request.URL.Path+"?there", http.StatusTemporaryRedirect)
			return
		}
		real.ServeHTTP(w, request)
	})
	n.serveBare(t, "lab.test:5000", r)
	d := newNode(t, n)
	d.apply(t, settings{rules: []string{source + " tag lab.test:5000 never"},
		sources: &contract.RegistrySources{Insecure: []string{"lab.test:5000"}}})
	d.mustPull(t, source+"/team/app:v1")
}

// TestA22_AHungTokenServerHoldsUpOnlyWhoAskedIt uses a token server that hangs on the first request and answers all
// later ones. The pull must not wait for the first request.
func TestA22_AHungTokenServerHoldsUpOnlyWhoAskedIt(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	var requests atomic.Int64
	m := newRegistry(t, n, "m1.test", withTokens)
	m.push(t, "team/app", newImage(t, 1000))
	app := m.app
	m.app = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/" && requests.Add(1) == 1 {
			silent(w, r, app)
		}
		app.ServeHTTP(w, r)
	})
	d := newNodeWith(t, n, resolver.Options{FirstByte: time.Second, LastFirstByte: time.Minute})
	d.apply(t, settings{rules: []string{source + " tag m1.test never"}, users: map[string]string{"m1.test": m.user}})
	began := time.Now()
	d.mustPull(t, source+"/team/app:v1")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the pull took %s, want at most 30 s", took)
	}
}

func TestA22_DockerHubIsOneByAllItsNames(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"registry-1.docker.io", "index.docker.io"} {
		n := newNetwork(t)
		hub := newRegistry(t, n, "registry-1.docker.io", withTokens).push(t, "team/app", newImage(t, 1000))
		d := newNode(t, n)
		d.apply(t, settings{rules: []string{source + " tag " + host + " never"},
			users: map[string]string{"docker.io": hub.user}})
		d.mustPull(t, source+"/team/app:v1")
	}
}

// TestA22_AChallengeMayComeLate uses a registry that requires a login only for its repositories, not for /v2/. The pull
// must succeed.
func TestA22_AChallengeMayComeLate(t *testing.T) {
	t.Parallel()
	for access, auth := range map[string]func(*testing.T, *network, string) (configuration.Auth, string){
		"users": withUsers, "tokens": withTokens,
	} {
		t.Run(access, func(t *testing.T) {
			t.Parallel()
			n := newNetwork(t)
			m := newRegistry(t, n, "m1.test", auth).push(t, "team/app", newImage(t, 1000))
			app := m.app
			m.app = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v2/" {
					app.ServeHTTP(w, r)
				}
			})
			d := newNode(t, n)
			d.apply(t, settings{rules: []string{source + " tag m1.test never"},
				users: map[string]string{"m1.test": m.user}})
			d.mustPull(t, source+"/team/app:v1")
		})
	}
}
