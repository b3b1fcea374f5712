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

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// lines is a log that tests read.
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

// Whoever reaches the port can connect and say what is no TLS. The log of a container is small: what
// matters in it must not be rotated away by that. It sets where Go's own log goes, so it runs alone.
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
		_, _ = io.Copy(io.Discard, conn) // until the server closes
		_ = conn.Close()
	}
	if text := written.String(); strings.Count(text, "\n") > 3 || !strings.Contains(text, "TLS handshake") {
		t.Errorf("%d lines were logged, the last of them %q", strings.Count(text, "\n"), text[max(0, len(text)-200):])
	}
}

// A daemon gets in while others hold all connections, and keeps its connection when more come.
func TestA55_ADaemonIsServedWhileOthersHoldAllConnections(t *testing.T) {
	t.Parallel()
	const connections = 16 // two of each address
	signer, goods, registry := newCA(t), &shelf{content: []byte("goods")}, prometheus.NewRegistry()
	p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Known: only("win-1"),
		Connections: connections, Registry: registry})
	address, silent := strings.TrimPrefix(p.url, "https://"), byte(1)
	hold := func(addresses int) {
		for n := range 2 * addresses {
			if n%2 == 0 {
				silent++
			}
			dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, silent)}}
			conn, err := dialer.DialContext(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}
	certificate, dials := signer.issue(t, contract.DaemonUserPrefix+"win-1", contract.DaemonGroup), 0
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: p.trust, MinVersion: tls.VersionTLS13,
			Certificates: []tls.Certificate{certificate}},
		DialContext: func(ctx context.Context, network, to string) (net.Conn, error) {
			dials++
			return new(net.Dialer).DialContext(ctx, network, to)
		},
	}
	defer transport.CloseIdleConnections()
	ask := func() {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			p.url+contract.PayloadServerPath+goods.digest(), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || string(body) != "goods" {
			t.Fatalf("%s: %q, %v", response.Status, body, err)
		}
	}
	hold(connections / 2)
	ask()
	hold(connections / 2)
	if status, _, err := p.get(t, &certificate, contract.PayloadServerPath+goods.digest(), ""); err != nil ||
		status != http.StatusOK { // it comes after all of them
		t.Errorf("a new connection of a daemon: %d, %v", status, err)
	}
	ask()
	if dials != 1 {
		t.Errorf("the daemon had to connect %d times", dials)
	}
	if got := gather(t, registry)["wmco_payload_failed_connections_total full"]; got < connections {
		t.Errorf("%v closures were counted", got)
	}
}

// A node, or whoever else has a certificate of the cluster, does not hold the connections of others by asking for
// something on each of its own.
func TestA55_WhoShowsACertificateDoesNotHoldAllConnections(t *testing.T) {
	t.Parallel()
	const connections, addresses = 128, 8
	for name, test := range map[string]struct {
		user, group string
		stay        int
	}{
		"the daemon of a node":                      {contract.DaemonUserPrefix + "win-1", contract.DaemonGroup, 16},
		"the daemon of a node that nobody has":      {contract.DaemonUserPrefix + "win-3", contract.DaemonGroup, 0},
		"a kubelet":                                 {contract.KubeletUserPrefix + "win-1", contract.KubeletGroup, 0},
		"who has a daemon's name but not its group": {contract.DaemonUserPrefix + "win-1", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			signer, goods := newCA(t), &shelf{content: []byte("goods")}
			p := start(t, payloadserver.Options{Blobs: goods, Clients: signer.pool, Connections: connections,
				Known: func(_ context.Context, node string) (bool, error) { return node != "win-3", nil }})
			holder, stay := signer.issue(t, test.user, test.group), 0
			for n := range connections {
				if p.hold(t, holder, net.IPv4(127, 0, 2, byte(1+n%addresses))) {
					stay++
				}
			}
			if stay != test.stay {
				t.Errorf("%d connections stay", stay)
			}
			other := signer.issue(t, contract.DaemonUserPrefix+"win-2", contract.DaemonGroup)
			status, body, err := p.get(t, &other, contract.PayloadServerPath+goods.digest(), "")
			if err != nil || status != http.StatusOK || string(body) != "goods" {
				t.Errorf("another node got %d %q: %v", status, body, err)
			}
		})
	}
}

// hold asks for what is not there, from an address of choice, and holds the connection until the test ends. It returns
// whether the payload server leaves it open.
func (p *place) hold(t *testing.T, as tls.Certificate, from net.IP) (stays bool) {
	t.Helper()
	dialer := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: from}},
		Config: &tls.Config{RootCAs: p.trust, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{as}}}
	conn, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
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
