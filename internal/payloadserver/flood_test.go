package payloadserver_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// lines is a log whose lines tests can read.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Any client can connect to the port without TLS. The log of a container has a limited size, so such clients must not
// be able to fill it. This test changes the output of Go's standard logger, so it doesn't run in parallel with other
// tests.
func TestA55_WhoShowsNoCertificateFillsNoLog(t *testing.T) {
	const connections = 1000
	written := &lines{}
	log.SetOutput(written)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	p := startLogged(t, funcr.New(func(_, text string) { _, _ = written.Write([]byte(text + "\n")) }, funcr.Options{}),
		payloadserver.Options{Blobs: &shelf{}, Clients: newCA(t).pool, Known: only("win-1")})
	for range connections {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "https://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = conn.Write([]byte("this is no TLS at all\n")); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, conn) // returns when the server closes the connection
		_ = conn.Close()
	}
	if text := written.String(); strings.Count(text, "\n") > 3 || !strings.Contains(text, "TLS handshake") {
		t.Errorf("%d lines were logged, the last of them %q", strings.Count(text, "\n"), text[max(0, len(text)-200):])
	}
}

// If other clients have opened all connections that the server allows, the server must still serve a daemon. If more
// clients connect then, the daemon's transfer must continue.
func TestA55_ADaemonIsServedWhileOthersHoldAllConnections(t *testing.T) {
	t.Parallel()
	const connections = 16
	signer, registry := newCA(t), prometheus.NewRegistry()
	goods := &shelf{content: []byte("goods"), gate: make(chan struct{}), opened: make(chan struct{}, 2)}
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1"),
		Connections: connections, Registry: registry})
	silent := []net.Conn{}
	hold := func() {
		for range connections {
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "https://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
			silent = append(silent, conn)
		}
	}
	daemon := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup)
	var asking sync.WaitGroup
	ask := func() {
		asking.Go(func() {
			status, body, err := p.get(t, &daemon, contract.PayloadServerPath+goods.digest(), "")
			if err != nil || status != http.StatusOK || string(body) != "goods" {
				t.Errorf("the daemon got %d %q: %v", status, body, err)
			}
		})
		receive(t, goods.opened)
	}
	hold()
	ask()
	hold()
	for _, conn := range silent[:connections] { // the server closed these connections when later connections came
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("more connections than allowed are open")
		}
	}
	ask() // this connection comes after all silent connections
	close(goods.gate)
	asking.Wait()
	if got := gather(t, registry)["wmco_payload_failed_connections_total full"]; got != connections+1 {
		t.Errorf("%v closed connections were counted", got)
	}
}

// A client with a certificate of the cluster, such as a node, can't keep connections open: each connection ends with
// its response.
func TestA55_WhoShowsACertificateDoesNotHoldAllConnections(t *testing.T) {
	t.Parallel()
	const connections = 128
	for name, test := range map[string]struct{ user, group string }{
		"the daemon of a node":                      {contract.DaemonUserPrefix + "win-1", contract.DaemonGroup},
		"the daemon of a node that nobody has":      {contract.DaemonUserPrefix + "win-3", contract.DaemonGroup},
		"a kubelet":                                 {contract.KubeletUserPrefix + "win-1", contract.KubeletGroup},
		"who has a daemon's name but not its group": {contract.DaemonUserPrefix + "win-1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signer, goods := newCA(t), &shelf{content: []byte("goods")}
			p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Connections: connections,
				Known: func(_ context.Context, node string) (bool, error) { return node != "win-3", nil }})
			holder := signer.issue(t, test.user, test.group)
			for range connections {
				if p.hold(t, holder) {
					t.Fatal("the connection stays open")
				}
			}
			other := signer.issue(t, contract.DaemonUserPrefix+"win-2", contract.DaemonGroup)
			status, body, err := p.get(t, &other, contract.PayloadServerPath+goods.digest(), "")
			if err != nil || status != http.StatusOK || string(body) != "goods" {
				t.Errorf("another node got %d %q: %v", status, body, err)
			}
		})
	}
}

// If a client announces a body and never sends it, the server must close this connection as soon as other clients need
// it.
func TestA55_WhoPromisesABodyDoesNotHoldAllConnections(t *testing.T) {
	t.Parallel()
	const connections = 8
	signer, goods := newCA(t), &shelf{content: []byte("goods")}
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1"),
		Connections: connections})
	kubelet := signer.issue(t, contract.KubeletUserPrefix+"win-1", contract.KubeletGroup)
	var first net.Conn
	for n := range 2 * connections {
		conn := p.dial(t, kubelet)
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			first = conn
		}
	}
	began := time.Now()
	_, _ = io.Copy(io.Discard, first)
	if waited := time.Since(began); waited > 5*time.Second {
		t.Errorf("the oldest connection stayed open for another %s", waited)
	}
}

// dial connects with a certificate. The connection is open until the test ends.
func (p *place) dial(t *testing.T, as tls.Certificate) net.Conn {
	t.Helper()
	dialer := tls.Dialer{
		Config: &tls.Config{RootCAs: p.trust, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{as}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// hold requests a blob that the payload doesn't contain. It reports whether the server leaves the connection open
// afterwards.
func (p *place) hold(t *testing.T, as tls.Certificate) (stays bool) {
	t.Helper()
	conn := p.dial(t, as)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		p.url+contract.PayloadServerPath+strings.Repeat("0", 64), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = request.Write(conn); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return !response.Close
}
