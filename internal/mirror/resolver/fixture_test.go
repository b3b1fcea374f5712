package resolver_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
	"github.com/windows-nodes/wmco/lab/leak"
	"github.com/windows-nodes/wmco/lab/port"
)

func TestMain(m *testing.M) { leak.VerifyTestMain(m) }

const token = "0123456789abcdef0123"

const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
)

// image is an index with one manifest, which has a small config and one layer.
type image struct {
	layer, config, manifest, index []byte
}

func newImage(seed uint64, layerSize int) image {
	m := image{layer: noise(seed, layerSize), config: fmt.Appendf(nil, `{"os":"windows","seed":%d}`, seed)}
	m.manifest = fmt.Appendf(
		nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"c","digest":%q,"size":%d},"layers":[{"mediaType":"l","digest":%q,"size":%d}]}`,
		manifestType, digestOf(m.config), len(m.config), digestOf(m.layer), len(m.layer))
	m.index = fmt.Appendf(
		nil, `{"schemaVersion":2,"mediaType":%q,"manifests":[{"mediaType":%q,"digest":%q,"size":%d}]}`,
		indexType, manifestType, digestOf(m.manifest), len(m.manifest))
	return m
}

func (m image) blobs() map[string][]byte {
	return map[string][]byte{digestOf(m.layer): m.layer, digestOf(m.config): m.config}
}

func (m image) manifests() map[string][]byte {
	return map[string][]byte{digestOf(m.manifest): m.manifest, digestOf(m.index): m.index}
}

func digestOf(content []byte) string { return "sha256:" + contract.Digest(content) }

// noise returns the same content for the same seed.
func noise(seed uint64, size int) []byte {
	content := make([]byte, size)
	var key [32]byte
	key[0], key[1], key[2] = byte(seed), byte(seed>>8), 77
	_, _ = rand.NewChaCha8(key).Read(content)
	return content
}

// upstream is a simulated registry. All upstreams have the same certificate, which httptest provides.
type upstream struct {
	*httptest.Server
	host string

	mu        sync.Mutex
	blobs     map[string][]byte
	manifests map[string][]byte
	tags      map[string]string
	fault     func(w http.ResponseWriter, r *http.Request) bool // returns true if it has answered the request
	requests  []*http.Request
	// auth returns false if it has refused the request and answered it.
	auth func(w http.ResponseWriter, r *http.Request) bool
}

func newUpstream(tb testing.TB, images ...image) *upstream {
	tb.Helper()
	u := &upstream{blobs: map[string][]byte{}, manifests: map[string][]byte{}, tags: map[string]string{}}
	u.Server = httptest.NewUnstartedServer(u)
	u.Config.ErrorLog = log.New(io.Discard, "", 0) // some tests cause certificate errors on purpose
	u.StartTLS()
	tb.Cleanup(u.Close)
	u.host = strings.TrimPrefix(u.URL, "https://")
	for _, m := range images {
		u.add(m)
	}
	return u
}

func (u *upstream) add(m image) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for d, content := range m.blobs() {
		u.blobs[d] = content
	}
	for d, content := range m.manifests() {
		u.manifests[d] = content
	}
	u.tags["latest"] = digestOf(m.index)
}

// failing sets a fault for all later requests.
func (u *upstream) failing(fault func(w http.ResponseWriter, r *http.Request) bool) *upstream {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.fault = fault
	return u
}

// asked returns how often a path that contains text was requested.
func (u *upstream) asked(text string) int {
	u.mu.Lock()
	defer u.mu.Unlock()
	n := 0
	for _, r := range u.requests {
		if strings.Contains(r.URL.Path, text) {
			n++
		}
	}
	return n
}

func (u *upstream) seen() []*http.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.requests)
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	u.requests = append(u.requests, r.Clone(context.WithoutCancel(r.Context())))
	fault, auth := u.fault, u.auth
	u.mu.Unlock()
	if auth != nil && !auth(w, r) {
		return
	}
	if r.URL.Path == "/v2/" {
		return
	}
	if fault != nil && fault(w, r) {
		return
	}
	u.serve(w, r)
}

func (u *upstream) serve(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	reference := parts[len(parts)-1]
	u.mu.Lock()
	if d, ok := u.tags[reference]; ok {
		reference = d
	}
	content, ok := u.blobs[reference]
	if parts[len(parts)-2] == "manifests" {
		content, ok = u.manifests[reference]
		w.Header().Set("Content-Type", typeOf(content))
	}
	u.mu.Unlock()
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Docker-Content-Digest", reference)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

func typeOf(content []byte) string {
	var m struct {
		MediaType string `json:"mediaType"`
	}
	_ = json.Unmarshal(content, &m)
	return m.MediaType
}

// rig is a running resolver with a client that sends requests like containerd.
type rig struct {
	*resolver.Resolver
	url     string
	client  *http.Client
	stop    func()
	mu      sync.Mutex
	reports []resolver.Report // the oldest first
}

// Reports returns all reports, the newest first.
func (g *rig) Reports() []resolver.Report {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := slices.Clone(g.reports)
	slices.Reverse(all)
	return all
}

// calm has time limits that even a busy machine does not exceed.
func calm() resolver.Options {
	return resolver.Options{Token: token, Connect: 20 * time.Second, FirstByte: 20 * time.Second,
		LastFirstByte: 20 * time.Second, Stall: 20 * time.Second}
}

// quick has time limits that are short enough for a test.
func quick() resolver.Options {
	o := calm()
	o.FirstByte, o.Stall = 400*time.Millisecond, 400*time.Millisecond
	return o
}

func newRig(tb testing.TB, o resolver.Options, c resolver.Config) *rig {
	tb.Helper()
	g := &rig{}
	o.OnReport = func(r resolver.Report) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.reports = append(g.reports, r)
	}
	g.Resolver = resolver.New(o)
	g.Update(c)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	g.url = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), logr.Discard()))
	served := make(chan error, 1)
	go func() { served <- g.Serve(ctx, listener) }()
	transport := &http.Transport{DisableCompression: true}
	g.client = &http.Client{Transport: transport}
	g.stop = sync.OnceFunc(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-served; err != nil {
			tb.Error(err)
		}
	})
	tb.Cleanup(g.stop)
	return g
}

// config creates rules from texts like "source kind mirror mirror … [never]".
func config(tb testing.TB, rules ...string) resolver.Config {
	tb.Helper()
	var all []contract.MirrorRule
	for _, text := range rules {
		words := strings.Fields(text)
		rule := contract.MirrorRule{Source: words[0], Kind: contract.PullKind(words[1]), Mirrors: words[2:]}
		if i := slices.Index(rule.Mirrors, "never"); i >= 0 {
			rule.NeverContactSource, rule.Mirrors = true, slices.Delete(rule.Mirrors, i, i+1)
		}
		all = append(all, rule)
	}
	compiled, err := mirror.NewRules(all)
	if err != nil {
		tb.Fatal(err)
	}
	return resolver.Config{Rules: compiled, Roots: roots(tb)}
}

// roots returns the certificate of httptest as a trusted root.
func roots(tb testing.TB) *x509.CertPool {
	tb.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
}

// secret creates a pull secret of key → user:password.
func secret(tb testing.TB, users map[string]string) mirror.PullSecret {
	tb.Helper()
	auths := map[string]any{}
	for key, user := range users {
		auths[key] = map[string]string{"auth": base64.StdEncoding.EncodeToString([]byte(user))}
	}
	return parseSecret(tb, auths)
}

func parseSecret(tb testing.TB, auths map[string]any) mirror.PullSecret {
	tb.Helper()
	content, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		tb.Fatal(err)
	}
	s, err := mirror.ParsePullSecret(content)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// answer is the resolver's answer.
type answer struct {
	status  int
	header  http.Header
	content []byte
	err     error // the error of reading the body
}

// ask sends a request as containerd does: the path below /v2/, and the registry as ns.
func (g *rig) ask(tb testing.TB, method, registry, path string, headers ...string) answer {
	tb.Helper()
	return g.askWith(tb.Context(), tb, method, registry, path, headers...)
}

func (g *rig) askWith(ctx context.Context, tb testing.TB, method, registry, path string, headers ...string) answer {
	tb.Helper()
	request, err := http.NewRequestWithContext(ctx, method, g.url+"/v2/"+path+"?ns="+url.QueryEscape(registry), nil)
	if err != nil {
		tb.Fatal(err)
	}
	return g.send(request, headers...)
}

func (g *rig) send(request *http.Request, headers ...string) answer {
	request.Header.Set(mirror.TokenHeader, mirror.Authorization(token))
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := g.client.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, header: response.Header, content: content, err: err}
}

// isRight reports whether an answer is complete and has these bytes.
func (a answer) isRight(want []byte) bool {
	return a.err == nil && a.status == http.StatusOK && bytes.Equal(a.content, want)
}

func (a answer) String() string {
	return fmt.Sprintf("status %d, %d bytes, error %v: %.300s", a.status, len(a.content), a.err, printable(a.content))
}

func printable(content []byte) string {
	if len(content) > 2000 {
		return "(long)"
	}
	return strconv.Quote(string(content))
}

// deadHost returns an address without a listener.
func deadHost(tb testing.TB) string {
	tb.Helper()
	p, err := port.Hold(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Release)
	return p.Address()
}

// report waits for a report, and returns the newest.
func (g *rig) report(tb testing.TB) resolver.Report {
	tb.Helper()
	eventually(tb, func() bool { return len(g.Reports()) > 0 })
	return g.Reports()[0]
}

// eventually waits until so returns true.
func eventually(tb testing.TB, so func() bool) {
	tb.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.After(time.Minute); !so(); {
		select {
		case <-end:
			tb.Fatal("the condition was not met in time")
		case <-tick.C:
		}
	}
}

func dial(to string) (net.Conn, error) { return net.Dial("tcp", to) }

// pem returns an upstream's certificate.
func pem(u *upstream) string {
	return "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(u.Certificate().Raw) +
		"\n-----END CERTIFICATE-----"
}
