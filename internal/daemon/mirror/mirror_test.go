package mirror_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	nodemirror "github.com/windows-nodes/wmco/internal/daemon/mirror"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/lab/sim"
)

type host struct {
	*sim.Machine
	service *nodemirror.Service
}

func newHost(t *testing.T) *host {
	t.Helper()
	m, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := &host{m, &nodemirror.Service{Network: m.Host().Network,
		Reporter: nodemirror.NewReporter(nodemirror.ReporterOptions{NodeName: "win-a", Files: m.Host().Files,
			Clock: clock.RealClock{}})}}
	t.Cleanup(func() {
		h.service.Close()
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func (h *host) follow(t *testing.T, c contract.Confidential) []contract.File {
	t.Helper()
	if len(c.Mirrors) > 0 {
		c.Trust = []string{trusted(t)}
	}
	files, problem := h.service.Follow(t.Context(), c, nil)
	if problem != nil {
		t.Fatal(problem)
	}
	return files
}

// trusted returns the certificate of httptest.
func trusted(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// ask sends a request to the resolver in the way that containerd does, with the token from files.
func (h *host) ask(t *testing.T, files []contract.File, path string) (status int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return h.Host().Network.Dial(ctx, netip.MustParseAddrPort(address))
		}}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9184"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set(mirror.TokenHeader, token(files))
	response, err := client.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// token returns the token in the file hosts.toml.
func token(files []contract.File) string {
	for _, f := range files {
		if _, after, ok := strings.Cut(f.Content, mirror.TokenHeader+" = ['"); ok {
			value, _, _ := strings.Cut(after, "']")
			return value
		}
	}
	return ""
}

func rule(source string, mirrors ...string) contract.MirrorRule {
	return contract.MirrorRule{Source: source, Kind: contract.PullByTag, Mirrors: mirrors}
}

func paths(files []contract.File) string {
	var all []string
	for _, f := range files {
		all = append(all, f.Path)
	}
	return strings.Join(all, " ")
}

// manifest is the image that a registry on the loopback address serves.
const manifest = `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[]}`

func serveImage(t *testing.T, repository string) string {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v2/":
		case "/v2/" + repository + "/manifests/v1":
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = io.WriteString(w, manifest)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func TestContainerdIsSentToTheResolverAndGetsTheMirrorsImage(t *testing.T) {
	t.Parallel()
	address := serveImage(t, "copy/app")
	h := newHost(t)
	files := h.follow(t, contract.Confidential{Mirrors: []contract.MirrorRule{rule("quay.example/team",
		address+"/copy")}})
	if got := paths(files); got != contract.PathHosts {
		t.Errorf("the files are %s", got)
	}
	if status, body := h.ask(t, files, "/v2/team/app/manifests/v1?ns=quay.example"); status != http.StatusOK ||
		body != manifest {
		t.Errorf("%d %s", status, body)
	}
	word := token(files)
	for i := range files {
		files[i].Content = strings.ReplaceAll(files[i].Content, word, "guessed-guessed-guessed")
	}
	if status, _ := h.ask(t, files, "/v2/team/app/manifests/v1?ns=quay.example"); status != http.StatusUnauthorized &&
		status != http.StatusForbidden {
		t.Errorf("without the node's token: %d", status)
	}
}

func TestNewRulesAreAtWorkAtOnceAndTheTokenStays(t *testing.T) {
	t.Parallel()
	address := serveImage(t, "copy/app")
	h := newHost(t)
	before := h.follow(t, contract.Confidential{Mirrors: []contract.MirrorRule{rule("quay.example/team",
		"nowhere.example/x")}})
	after := h.follow(t, contract.Confidential{Mirrors: []contract.MirrorRule{rule("quay.example/team",
		address+"/copy")}})
	if token(before) != token(after) || token(after) == "" {
		t.Error("the token changed, so containerd's requests would be refused until its files are updated")
	}
	if status, body := h.ask(t, before, "/v2/team/app/manifests/v1?ns=quay.example"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if files := h.follow(t, contract.Confidential{}); len(files) != 0 || files == nil {
		t.Errorf("without rules: %v", files)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for listens := true; listens; {
		status, _ := h.ask(t, after, "/v2/")
		listens = status != 0
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the resolver listens although there are no rules")
		}
	}
	again := h.follow(t, contract.Confidential{Mirrors: []contract.MirrorRule{rule("quay.example/team",
		address+"/copy")}})
	if status, body := h.ask(t, again, "/v2/team/app/manifests/v1?ns=quay.example"); status != http.StatusOK {
		t.Errorf("with rules again: %d %s", status, body)
	}
}

// The configuration of a thousand sources takes noticeable time, and deletes cached tokens. So the resolver must be
// configured only if a setting changed, not in each pass.
func TestA22_TheResolverIsConfiguredOnlyWhenASettingChanged(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	configured := 0
	ctx := logr.NewContext(t.Context(), funcr.New(func(_, args string) {
		if strings.Contains(args, "the mirror resolver follows") {
			configured++
		}
	}, funcr.Options{}))
	var c contract.Confidential
	for i := range 1000 {
		c.Mirrors = append(c.Mirrors, rule(fmt.Sprintf("quay.io/team-%d", i), fmt.Sprintf("m.example/%d", i)))
	}
	follow := func() []contract.File {
		files, problem := h.service.Follow(ctx, c, nil)
		if problem != nil {
			t.Fatal(problem)
		}
		return files
	}
	first := follow()
	if again := follow(); configured != 1 || !reflect.DeepEqual(again, first) {
		t.Errorf("configured %d times, with %v and %v", configured, first, again)
	}
	c.Mirrors = append(slices.Clone(c.Mirrors[1:]), rule("other.example/0", "m.example/0"))
	if files := follow(); configured != 2 || !reflect.DeepEqual(files, first) {
		t.Errorf("one change caused %d configurations, with %v", configured-1, files)
	}
}

func TestAPortThatIsTakenHasItsReasonAndIsTakenLater(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	h.SetForeignPort(contract.MirrorPort, "other.exe")
	c := contract.Confidential{PullSecret: []byte(`{"auths":{"quay.example":{"auth":"dTpw"}}}`)}
	files, problem := h.service.Follow(t.Context(), c, nil)
	if problem == nil || problem.Reason != contract.ReasonPortInUse || !strings.Contains(problem.Detail, "other.exe") {
		t.Fatalf("%v, %v", files, problem)
	}
	h.SetForeignPort(contract.MirrorPort, "")
	if got := paths(h.follow(t, c)); got != contract.PathHosts {
		t.Errorf("the files are %s", got)
	}
}

// If another program listens on the resolver's port, it would act as the node's registry as long as a file directs
// containerd to this port.
func TestA22_NobodyIsSentToAnotherProgramThatHasThePort(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	never := rule("quay.example", "nowhere.example")
	never.NeverContactSource, never.Mirrors = true, nil
	c := contract.Confidential{Mirrors: []contract.MirrorRule{never, rule("other.example", "m.example/x")},
		RegistryTrust: map[string]string{"other.example": newCA(t)}}
	before := h.follow(t, c)
	h.service.Close() // as at each replacement of the daemon
	h.SetForeignPort(contract.MirrorPort, "other.exe")
	for range 2 {
		files, problem := h.service.Follow(t.Context(), c, nil)
		if problem == nil || problem.Reason != contract.ReasonPortInUse || paths(files) != paths(before) {
			t.Fatalf("%s, %v", paths(files), problem)
		}
		for _, f := range files {
			if strings.Contains(f.Content, "9184") || strings.Contains(f.Content, mirror.TokenHeader) ||
				!strings.Contains(f.Content, ".invalid.'") {
				t.Errorf("%s names the other program's port:\n%s", f.Path, f.Content)
			}
		}
	}
	h.SetForeignPort(contract.MirrorPort, "")
	if after := h.follow(t, c); paths(after) != paths(before) || token(after) == "" {
		t.Errorf("the files are %s", paths(after))
	}
}

// Another program has listened on the port, and has received the token with each pull.
func TestATokenThatAnotherProgramMayHaveHeardIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := contract.Confidential{PullSecret: []byte(`{"auths":{"quay.example":{"auth":"dTpw"}}}`)}
	before := h.follow(t, c)
	h.service.Close() // as at each replacement of the daemon
	h.SetForeignPort(contract.MirrorPort, "other.exe")
	for range 2 {
		if _, problem := h.service.Follow(t.Context(), c, nil); problem == nil || problem.Reason != contract.ReasonPortInUse {
			t.Fatalf("the port is free, but the problem is %v", problem)
		}
	}
	h.SetForeignPort(contract.MirrorPort, "")
	after := h.follow(t, c)
	if len(before) == 0 || len(after) != len(before) || after[0].Path != before[0].Path {
		t.Fatalf("the files are %s, before they were %s", paths(after), paths(before))
	}
	if after[0].Content == before[0].Content {
		t.Error("containerd still uses the old token")
	}
	if again := h.follow(t, c); again[0].Content != after[0].Content {
		t.Error("the token changes in each pass")
	}
}

// Another program may have listened on the port and stopped before the daemon noticed. So the token must change each
// time that the resolver begins to listen.
func TestA22_TheTokenIsAnotherEachTimeTheResolverBeginsToListen(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	c := contract.Confidential{PullSecret: []byte(`{"auths":{"quay.example":{"auth":"dTpw"}}}`)}
	before := h.follow(t, c)
	for range 2 {
		h.service.Close() // as at each replacement of the daemon
		after := h.follow(t, c)
		if paths(after) != paths(before) || token(after) == token(before) || token(after) == "" {
			t.Error("containerd still uses the old token")
		}
		if status, _ := h.ask(t, before, "/v2/"); status != http.StatusForbidden {
			t.Errorf("the old token returns status %d", status)
		}
		if status, _ := h.ask(t, after, "/v2/"); status != http.StatusOK {
			t.Errorf("the new token returns status %d", status)
		}
		before = after
	}
}

func TestContainerdIsSentToTheResolverByAnySetting(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]contract.Confidential{
		"a CA":          {RegistryTrust: map[string]string{"a.example": newCA(t)}},
		"a pull secret": {PullSecret: []byte(`{"auths":{}}`)},
		"a rule":        {Mirrors: []contract.MirrorRule{rule("quay.example", "m.example")}},
		"blocked":       {Registries: &contract.RegistrySources{Blocked: []string{"quay.example"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := newHost(t).follow(t, c)
			if got := paths(files); got != contract.PathHosts || token(files) == "" {
				t.Errorf("the files are %s", got)
			}
		})
	}
}

func TestCountersAreInAFileThatTheExporterReads(t *testing.T) {
	t.Parallel()
	address := serveImage(t, "copy/app")
	h := newHost(t)
	files := h.follow(t, contract.Confidential{Mirrors: []contract.MirrorRule{rule("quay.example/team",
		address+"/copy")}})
	if status, body := h.ask(t, files, "/v2/team/app/manifests/v1?ns=quay.example"); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	if err := h.Host().Files.MkdirAll(contract.DirMetrics, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() { h.service.Reporter.Write(ctx) })
	defer writing.Wait()
	defer stop()
	want := fmt.Sprintf(`# HELP wicd_resolver_failures_total Requests of containerd that no registry answered completely, or that the cluster refuses.
# TYPE wicd_resolver_failures_total counter
wicd_resolver_failures_total 0
# HELP wicd_resolver_served_bytes_total Bytes of manifests and layers that came from a registry.
# TYPE wicd_resolver_served_bytes_total counter
wicd_resolver_served_bytes_total{registry=%[1]q} %[2]d
# HELP wicd_resolver_served_total Requests of containerd that a registry answered.
# TYPE wicd_resolver_served_total counter
wicd_resolver_served_total{registry=%[1]q} 1
`, address, len(manifest))
	var content []byte
	deadline, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for string(content) != want {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s", content)
		}
		content, _ = winos.ReadFile(h.Host().Files, contract.PathMetrics)
	}
}

func TestWhatCanNotBeFollowedHasAReasonWithoutTheSecret(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		what contract.Confidential
		want contract.Reason
	}{
		"a pull secret that is no JSON": {contract.Confidential{PullSecret: []byte("hunter2")},
			contract.ReasonPullSecretInvalid},
		"a rule that climbs out": {contract.Confidential{Mirrors: []contract.MirrorRule{rule(`..\..\hunter2`,
			"m.example")}}, contract.ReasonManifestInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, problem := newHost(t).service.Follow(t.Context(), c.what, nil)
			if problem == nil || problem.Reason != c.want || files != nil {
				t.Errorf("%v, %v", files, problem)
			}
			if strings.Contains(name, "secret") && strings.Contains(problem.Detail, "hunter2") {
				t.Errorf("the secret is in %q", problem.Detail)
			}
		})
	}
}

func TestTheClustersProxyCountsForPulls(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 8)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	h := newHost(t)
	c := contract.Confidential{Mirrors: []contract.MirrorRule{rule("quay.example/team", "m.example/copy")}}
	files, problem := h.service.Follow(t.Context(), c,
		map[string]string{"HTTPS_PROXY": proxy.URL, "NO_PROXY": "quay.example"})
	if problem != nil {
		t.Fatal(problem)
	}
	if status, _ := h.ask(t, files, "/v2/team/app/manifests/v1?ns=quay.example"); status == http.StatusOK ||
		status == 0 {
		t.Errorf("status %d", status)
	}
	select {
	case got := <-asked:
		if got != "CONNECT m.example:443" {
			t.Errorf("the proxy got a request for %s", got)
		}
	case <-time.After(time.Minute):
		t.Error("the proxy got no request")
	}
}

func newCA(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "registry ca"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
