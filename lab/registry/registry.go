package registry

import (
	"bytes"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/windows-nodes/wmco/lab/port"
)

// Registry is a registry. It stops when the test ends.
type Registry struct {
	// Host is the registry's name in images and mirrors: an address with a port.
	Host    string
	server  *httptest.Server
	handler http.Handler
	tls     *tls.Config
	content http.Handler

	mu sync.Mutex
	// login is user:password. If it is empty, the registry needs no login.
	login string
	// served contains the paths of accepted requests.
	served []string
	// wrong is the digest of a blob that is sent with a changed byte. If it is empty, all content is correct.
	wrong string
	// lost makes the registry answer that it has no images.
	lost bool
}

// Start starts a registry with a certificate of a CA. It needs no login.
func Start(t *testing.T, by *CA) *Registry {
	t.Helper()
	silent := log.New(io.Discard, "", 0)
	held, err := port.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	r := &Registry{Host: held.Address(), content: registry.New(registry.Logger(silent))}
	r.handler = http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if !r.letsIn(request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.isLost() {
			http.NotFound(w, request)
			return
		}
		if request.Method == http.MethodGet && r.liesAbout(path.Base(request.URL.Path)) {
			w = &spoiler{ResponseWriter: w}
		}
		r.content.ServeHTTP(w, request)
	})
	r.tls = &tls.Config{Certificates: []tls.Certificate{by.sign(t)}, MinVersion: tls.VersionTLS12}
	r.Resume(t)
	t.Cleanup(func() { r.server.Close() })
	return r
}

// Close stops the registry before its test ends. Its address stays reserved, and connections are refused.
func (r *Registry) Close() { r.server.Close() }

// Resume starts the registry again at its address, after Close.
func (r *Registry) Resume(t *testing.T) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", r.Host)
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, TLS: r.tls,
		Config: &http.Server{Handler: r.handler, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute}}
	server.StartTLS()
	r.server = server
}

// Lock makes the registry accept only this login, in the form user:password.
func (r *Registry) Lock(login string) *Registry {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.login = login
	return r
}

// Lie changes a byte of a blob in each response. The size and the headers stay the same. Lie("") ends the lying.
func (r *Registry) Lie(digest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = digest
}

// Lose makes the registry report no images. Lose(false) makes it serve its images again.
func (r *Registry) Lose(lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = lost
}

func (r *Registry) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

func (r *Registry) liesAbout(digest string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrong != "" && digest == r.wrong
}

// spoiler changes the first byte of a response.
type spoiler struct {
	http.ResponseWriter
	begun bool
}

func (s *spoiler) Write(content []byte) (int, error) {
	if !s.begun && len(content) > 0 {
		s.begun = true
		content = bytes.Clone(content)
		content[0] ^= 1
	}
	return s.ResponseWriter.Write(content)
}

func (r *Registry) letsIn(request *http.Request) bool {
	user, password, _ := request.BasicAuth()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.login != "" && r.login != user+":"+password {
		return false
	}
	r.served = append(r.served, request.URL.Path)
	return true
}

// Asked returns the paths of all requests that were accepted since the last call.
func (r *Registry) Asked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	paths := r.served
	r.served = nil
	return paths
}

// Push stores an image in the registry, without a login, and returns the image.
func (r *Registry) Push(t *testing.T, i Image, repository, tag string) Image {
	t.Helper()
	do := func(method, path, mediaType string, content []byte) {
		request := httptest.NewRequestWithContext(t.Context(), method, "/v2/"+repository+path, bytes.NewReader(content))
		request.Header.Set("Content-Type", mediaType)
		answer := httptest.NewRecorder()
		r.content.ServeHTTP(answer, request)
		if answer.Code != http.StatusCreated {
			t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
	}
	for _, blob := range [][]byte{i.Configuration, i.Layer} {
		do(http.MethodPost, "/blobs/uploads/?digest="+Digest(blob), "application/octet-stream", blob)
	}
	do(http.MethodPut, "/manifests/"+tag, string(manifestType), i.Manifest)
	return i
}
