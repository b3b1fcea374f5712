package pull_test

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/distribution/distribution/v3/configuration"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
	"github.com/distribution/distribution/v3/registry/auth/token"
	"github.com/distribution/distribution/v3/registry/handlers"
	_ "github.com/distribution/distribution/v3/registry/storage/driver/inmemory"
	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/sirupsen/logrus"
	"golang.org/x/crypto/bcrypt"
)

// registry is a real registry whose answers a test can change.
type registry struct {
	name string
	net  *network
	user string // user:password, or empty if no login is needed
	app  http.Handler

	mu       sync.Mutex
	fault    func(w http.ResponseWriter, r *http.Request, real http.Handler)
	requests []*http.Request
}

// open, withUsers and withTokens configure the login of a registry. open needs no login.
func open(*testing.T, *network, string) (configuration.Auth, string) { return nil, "" }

func withUsers(t *testing.T, _ *network, name string) (configuration.Auth, string) {
	t.Helper()
	user := "user-of-" + strings.ReplaceAll(name, ":", "-")
	hash, err := bcrypt.GenerateFromPassword([]byte("p4ssw0rd"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(path, []byte(user+":"+string(hash)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return configuration.Auth{"htpasswd": {"realm": "here", "path": path}}, user + ":p4ssw0rd"
}

// withTokens adds a token server on another host.
func withTokens(t *testing.T, n *network, name string) (configuration.Auth, string) {
	t.Helper()
	host, _, _ := strings.Cut(name, ":")
	server := "auth." + host
	user := "user-of-" + host
	keys, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &n.key.PublicKey, KeyID: "k",
		Algorithm: "ES256"}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "jwks")
	if err := os.WriteFile(path, keys, 0o600); err != nil {
		t.Fatal(err)
	}
	n.serve(t, server, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u+":"+p != user+":p4ssw0rd" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if err := issue(w, n.key, name, r.URL.Query()["scope"]); err != nil {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	return configuration.Auth{"token": {"realm": "https://" + server + "/token", "issuer": "tests", "service": name,
		"jwks": path}}, user + ":p4ssw0rd"
}

// issue writes a token for all requested scopes.
func issue(w io.Writer, key *ecdsa.PrivateKey, service string, scopes []string) error {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: "k"}},
		nil)
	if err != nil {
		return err
	}
	claims := token.ClaimSet{Issuer: "tests", Audience: []string{service},
		NotBefore: time.Now().Add(-time.Minute).Unix(), Expiration: time.Now().Add(time.Hour).Unix()}
	for _, scope := range scopes {
		if parts := strings.SplitN(scope, ":", 3); len(parts) == 3 {
			claims.Access = append(claims.Access,
				&token.ResourceActions{Type: parts[0], Name: parts[1], Actions: strings.Split(parts[2], ",")})
		}
	}
	text, err := jwt.Signed(signer).Claims(claims).Serialize()
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(map[string]any{"token": text, "expires_in": 300})
}

func newRegistry(t *testing.T, n *network, host string,
	auth func(*testing.T, *network, string) (configuration.Auth, string)) *registry {
	t.Helper()
	logrus.SetOutput(io.Discard)
	r := &registry{name: host, net: n}
	c := &configuration.Configuration{}
	c.Storage = configuration.Storage{"inmemory": {}, "delete": {"enabled": true}}
	c.HTTP.Secret = "s"
	c.Log.Level = "panic"
	c.Log.AccessLog.Disabled = true
	c.Auth, r.user = auth(t, n, host)
	r.app = handlers.NewApp(t.Context(), c)
	n.serve(t, host, r)
	return r
}

func (r *registry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	fault := r.fault
	r.requests = append(r.requests, request)
	r.mu.Unlock()
	if fault != nil && request.URL.Path != "/v2/" {
		fault(w, request, r.app)
		return
	}
	r.app.ServeHTTP(w, request)
}

// failing sets a fault for all further requests. nil removes the fault.
func (r *registry) failing(fault func(w http.ResponseWriter, request *http.Request, real http.Handler)) *registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
	return r
}

// asked returns the number of requests with a text in their path since the last push. It doesn't count requests for the
// API's version.
func (r *registry) asked(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, request := range r.requests {
		if request.URL.Path != "/v2/" && strings.Contains(request.URL.Path, text) {
			n++
		}
	}
	return n
}

// push pushes an image as repository:v1.
func (r *registry) push(t *testing.T, repository string, image v1.ImageIndex) *registry {
	t.Helper()
	tag, err := name.NewTag(r.name+"/"+repository+":v1", name.StrictValidation)
	if err != nil {
		t.Fatal(err)
	}
	options := []remote.Option{remote.WithTransport(r.net.transport()), remote.WithContext(t.Context())}
	if user, password, ok := strings.Cut(r.user, ":"); ok {
		options = append(options, remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	}
	if err := remote.WriteIndex(tag, image, options...); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests = nil
	r.net.mu.Lock()
	defer r.net.mu.Unlock()
	r.net.asked[withPort(r.name)] = 0
	return r
}

// newImage creates an image for two architectures, each with two layers.
func newImage(t *testing.T, layerSize int64) v1.ImageIndex {
	t.Helper()
	image, err := random.Index(layerSize, 2, 2)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// layersOf returns the digests of all layers.
func layersOf(t *testing.T, index v1.ImageIndex) (digests []string) {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		layers, err := image.Layers()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range layers {
			digest, err := l.Digest()
			if err != nil {
				t.Fatal(err)
			}
			digests = append(digests, digest.String())
		}
	}
	return digests
}

func digestOf(t *testing.T, image v1.ImageIndex) string {
	t.Helper()
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// Faults of mirrors.

func refuses(status int) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(status) }
}

// silent sends nothing until the client disconnects.
func silent(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

// lying changes one byte of every body. where returns the index of this byte for a body's size.
func lying(where func(size int) int) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		recorder := &recorder{header: w.Header()}
		real.ServeHTTP(recorder, r)
		content := recorder.body.Bytes()
		if len(content) > 0 {
			content[where(len(content))] ^= 1
		}
		w.WriteHeader(max(recorder.status, http.StatusOK))
		_, _ = w.Write(content)
	}
}

// breaking ends every large body in the middle.
func breaking(w http.ResponseWriter, r *http.Request, real http.Handler) {
	recorder := &recorder{header: w.Header()}
	real.ServeHTTP(recorder, r)
	w.WriteHeader(max(recorder.status, http.StatusOK))
	if content := recorder.body.Bytes(); len(content) > 1<<20 {
		_, _ = w.Write(content[:len(content)/2])
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(recorder.body.Bytes())
}

type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }
