package e2e_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// depot is a real registry, over TLS, at an address of the loopback, where simulated hosts reach it as themselves.
type depot struct {
	// host is how image names and mirrors call it.
	host    string
	server  *httptest.Server
	content http.Handler

	mu sync.Mutex
	// login is user:password, empty for a registry that lets everybody in.
	login string
	// served are the paths of requests that were let in.
	served []string
}

// newDepot starts a registry, and signs its certificate with that of an authority.
func newDepot(t *testing.T, ca tls.Certificate) *depot {
	t.Helper()
	d := &depot{content: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	d.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.letsIn(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="depot"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		d.content.ServeHTTP(w, r)
	}))
	d.server.TLS = &tls.Config{Certificates: []tls.Certificate{signed(t, ca)}, MinVersion: tls.VersionTLS12}
	d.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	d.server.StartTLS()
	t.Cleanup(d.server.Close)
	d.host = d.server.Listener.Addr().String()
	return d
}

func (d *depot) letsIn(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.login != "" && d.login != user+":"+password {
		return false
	}
	d.served = append(d.served, r.URL.Path)
	return true
}

// lock lets only one user in from now on.
func (d *depot) lock(login string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.login = login
}

// asked says how often something was asked for since the last call.
func (d *depot) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.served)
	d.served = nil
	return n
}

// image is one image as a registry has it: a manifest, its configuration and one layer.
type image struct{ manifest, configuration, layer []byte }

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// newImage makes one that nobody else has.
func newImage() image {
	i := image{layer: []byte(rand.Text()), configuration: fmt.Appendf(nil, `{"os":"windows","comment":%q}`, rand.Text())}
	i.manifest = fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`,
		manifestType, digestOf(i.configuration), len(i.configuration), digestOf(i.layer), len(i.layer))
	return i
}

func (i image) digest() string { return digestOf(i.manifest) }

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// push puts an image there.
func (d *depot) push(t *testing.T, i image, repository, tag string) {
	t.Helper()
	do := func(method, path, mediaType string, content []byte) {
		request := httptest.NewRequestWithContext(t.Context(), method, "/v2/"+repository+path, bytes.NewReader(content))
		request.Header.Set("Content-Type", mediaType)
		answer := httptest.NewRecorder()
		d.content.ServeHTTP(answer, request)
		if answer.Code != http.StatusCreated {
			t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
	}
	for _, blob := range [][]byte{i.configuration, i.layer} {
		do(http.MethodPost, "/blobs/uploads/?digest="+digestOf(blob), "application/octet-stream", blob)
	}
	do(http.MethodPut, "/manifests/"+tag, manifestType, i.manifest)
}

// pull pulls an image as containerd on a host does: it follows hosts.toml to the resolver, and takes the manifest and all that it names.
func pull(ctx context.Context, h *fleet.Host, host, repository, reference string) error {
	token, err := resolverToken(h, host)
	if err != nil {
		return err
	}
	node := h.Machine.Host().Network
	client := &http.Client{Timeout: soon, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return nil, err
			}
			return node.Dial(ctx, to)
		},
	}}
	get := func(kind, reference string) ([]byte, error) {
		url := fmt.Sprintf("http://127.0.0.1:%d/v2/%s/%s/%s?ns=%s", contract.MirrorPort, repository, kind, reference, host)
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return nil, err
		}
		request.Header.Set(mirror.TokenHeader, token)
		response, err := client.Do(request)
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(response.Body)
		err = errors.Join(err, response.Body.Close())
		if response.StatusCode != http.StatusOK {
			err = errors.Join(err, fmt.Errorf("pulling %s/%s %s: %s: %.300s", host, repository, reference, response.Status, content))
		}
		if digest := digestOf(content); err == nil && strings.HasPrefix(reference, "sha256:") && digest != reference {
			err = fmt.Errorf("%s is %s", reference, digest)
		}
		return content, err
	}
	manifest, err := get("manifests", reference)
	if err != nil {
		return err
	}
	var parts struct {
		Config struct{ Digest string }
		Layers []struct{ Digest string }
	}
	if err = json.Unmarshal(manifest, &parts); err != nil {
		return err
	}
	for _, part := range append(parts.Layers, parts.Config) {
		if _, err = get("blobs", part.Digest); err != nil {
			return err
		}
	}
	return nil
}

// hostsFile is what containerd on a host reads about a registry at an address with a port.
func hostsFile(h *fleet.Host, registry string) (string, error) {
	host, port, _ := strings.Cut(registry, ":")
	content, err := winos.ReadFile(h.Machine.Host().Files, contract.DirRegistries+`\`+host+"_"+port+`_\`+mirror.HostsFile)
	return string(content), err
}

func resolverToken(h *fleet.Host, registry string) (string, error) {
	content, err := hostsFile(h, registry)
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(mirror.TokenHeader + ` = \['([^']+)'\]`).FindStringSubmatch(content)
	if found == nil {
		return "", fmt.Errorf("hosts.toml has no token: %s", content)
	}
	return found[1], nil
}

// newCA makes an authority that can sign.
func newCA(t *testing.T, cn string) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: cn}, BasicConstraintsValid: true, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	leaf, err := x509.ParseCertificate(raw)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

// signed makes a key and certificate of a server at 127.0.0.1.
func signed(t *testing.T, ca tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}
