package pull_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// network is a fake network. Its host names lead to servers in this process. The resolver connects through the
// cluster's proxy, and containerd connects directly.
type network struct {
	proxy *httptest.Server

	key *ecdsa.PrivateKey
	ca  *x509.Certificate

	mu      sync.Mutex
	servers map[string]string // host:port → loopback address
	asked   map[string]int    // number of connections by host:port
}

const proxyUser = "proxy-user:proxy-password"

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{servers: map[string]string{}, asked: map[string]int{}}
	var err error
	if n.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: "the cluster's CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if n.ca, err = x509.ParseCertificate(n.sign(t, template, template, &n.key.PublicKey)); err != nil {
		t.Fatal(err)
	}
	n.proxy = httptest.NewServer(http.HandlerFunc(n.connect))
	t.Cleanup(n.proxy.Close)
	return n
}

func (n *network) sign(t *testing.T, template, parent *x509.Certificate, key *ecdsa.PublicKey) []byte {
	t.Helper()
	certificate, err := x509.CreateCertificate(rand.Reader, template, parent, key, n.key)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}

// bundle returns the CA in PEM.
func (n *network) bundle() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: n.ca.Raw}))
}

func (n *network) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(n.ca)
	return pool
}

// serve adds a TLS server to the network under a host name, with or without a port.
func (n *network) serve(t *testing.T, name string, handler http.Handler) *httptest.Server {
	t.Helper()
	host, _, _ := strings.Cut(name, ":")
	template := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore: time.Now().Add(-time.Hour),
		NotAfter:  time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	certificate := n.sign(t, template, n.ca, &n.key.PublicKey)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{certificate}, PrivateKey: n.key}},
		MinVersion: tls.VersionTLS12}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	n.add(name, server.Listener.Addr().String())
	return server
}

// serveBare adds a server without TLS to the network.
func (n *network) serveBare(t *testing.T, name string, handler http.Handler) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	n.add(name, server.Listener.Addr().String())
}

func (n *network) add(name, address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[withPort(name)] = address
}

func withPort(name string) string {
	if strings.Contains(name, ":") {
		return name
	}
	return name + ":443"
}

// dial connects to a host name. Unknown names don't resolve.
func (n *network) dial(ctx context.Context, name string) (net.Conn, error) {
	n.mu.Lock()
	address, ok := n.servers[name]
	n.asked[name]++
	n.mu.Unlock()
	if !ok {
		host, _, _ := net.SplitHostPort(name)
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// connections returns the number of connections to a name.
func (n *network) connections(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[withPort(name)]
}

// connect is the handler of the cluster's proxy. It requires a login.
func (n *network) connect(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(proxyUser)) {
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method != http.MethodConnect {
		forward := httputil.ReverseProxy{Transport: n.transport(), Rewrite: func(*httputil.ProxyRequest) {}}
		forward.ServeHTTP(w, r)
		return
	}
	server, err := n.dial(r.Context(), r.Host)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer server.Close()
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
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

func (n *network) proxyFor(*http.Request) (*url.URL, error) {
	return url.Parse("http://" + proxyUser + "@" + n.proxy.Listener.Addr().String())
}

// transport returns an HTTP transport that connects to the network directly.
func (n *network) transport() *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, address string) (net.Conn,
			error) {
			return n.dial(ctx, address)
		},
		TLSClientConfig:   &tls.Config{RootCAs: n.roots(), MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true,
	}
}
