//go:build linux

package wine_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/windows-nodes/wmco/lab/fleet"
)

// depot is a real registry, over TLS, on this machine, at an address that hosts reach.
type depot struct {
	// host is how image names and mirrors call it: an address with a port.
	host    string
	content http.Handler

	mu sync.Mutex
	// login is user:password, empty for a registry that lets everybody in.
	login string
	// served are the paths of requests that were let in.
	served []string
}

// newDepot starts a registry with a certificate of an authority, and lets a host reach it.
func newDepot(t *testing.T, h *fleet.Host, ca tls.Certificate) *depot {
	t.Helper()
	d := &depot{content: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !d.letsIn(r) {
			w.Header().Set("WWW-Authenticate", `Basic realm="depot"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		d.content.ServeHTTP(w, r)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{signed(t, ca)}, MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	d.host = server.Listener.Addr().String()
	address, err := netip.ParseAddrPort(d.host)
	if err != nil {
		t.Fatal(err)
	}
	if err = machine(h).Reach(address); err != nil {
		t.Fatal(err)
	}
	return d
}

// deadHost is an address at which nobody listens, neither here nor on a host.
func deadHost(t *testing.T) string {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err = listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

func (d *depot) letsIn(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.login != "" && d.login != user+":"+password {
		return false
	}
	if strings.Trim(r.URL.Path, "/") != "v2" {
		d.served = append(d.served, r.URL.Path)
	}
	return true
}

// lock lets only one user in from now on.
func (d *depot) lock(login string) *depot {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.login = login
	return d
}

// asked is what was asked for, about images, since the last call.
func (d *depot) asked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	paths := d.served
	d.served = nil
	return paths
}

// image is one image as a registry has it: a manifest, its configuration and one layer.
type image struct{ manifest, configuration, layer []byte }

const manifestType = "application/vnd.oci.image.manifest.v1+json"

// newImage makes one that nobody else has. Its layer is large enough to come in many parts, and no archive: nothing here could unpack it.
func newImage() image {
	i := image{layer: bytes.Repeat([]byte(rand.Text()), 40_000)}
	i.configuration = fmt.Appendf(nil, `{"os":"windows","architecture":"amd64","comment":%q,"rootfs":{"type":"layers","diff_ids":[%q]}}`, rand.Text(), digestOf(i.layer))
	i.manifest = fmt.Appendf(nil, `{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`,
		manifestType, digestOf(i.configuration), len(i.configuration), digestOf(i.layer), len(i.layer))
	return i
}

func (i image) digest() string { return digestOf(i.manifest) }

// parts are the digests of all that belongs to it.
func (i image) parts() []string {
	return []string{i.digest(), digestOf(i.configuration), digestOf(i.layer)}
}

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

// push puts an image there, past the lock.
func (d *depot) push(t *testing.T, i image, repository, tag string) image {
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
	return i
}

// newCA makes an authority that can sign.
func newCA(t *testing.T, cn string) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: cn}, BasicConstraintsValid: true, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageCertSign,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))
}

// signed makes a key and certificate of a server at 127.0.0.1.
func signed(t *testing.T, ca tls.Certificate) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}
