package registry

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Internet is an HTTPS proxy to a single registry with a public name, such as ghcr.io. With the proxy, commands that
// name a public registry run unchanged, but never reach the real registry. The proxy stops when its test ends.
type Internet struct {
	// Proxy is the URL of the proxy, for HTTPS_PROXY.
	Proxy *url.URL
	// Host is the name of the registry.
	Host string

	// login is user:password.
	login       string
	connections chan net.Conn
	closed      chan struct{}
	mu          sync.Mutex
	refused     []string
}

// StartInternet starts a proxy, and an empty registry behind it. Everyone can pull from the registry. A push needs a
// login of the form user:password.
func StartInternet(t *testing.T, by *CA, host, login string) *Internet {
	t.Helper()
	i := &Internet{Host: host, login: login, connections: make(chan net.Conn), closed: make(chan struct{})}
	silent := log.New(io.Discard, "", 0)
	proxy := httptest.NewServer(http.HandlerFunc(i.connect))
	server := &http.Server{Handler: i.guard(registry.New(registry.Logger(silent))), ErrorLog: silent,
		ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	own := &tls.Config{Certificates: []tls.Certificate{by.sign(t, host)}, MinVersion: tls.VersionTLS12}
	go func() { ended <- server.Serve(tls.NewListener(i, own)) }()
	t.Cleanup(func() {
		_ = server.Close() // Close below returns the same error
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the registry %s ended: %v", host, err)
		}
		proxy.Close()
	})
	var err error
	if i.Proxy, err = url.Parse(proxy.URL); err != nil {
		t.Fatal(err)
	}
	return i
}

// guard requires the login for writes. It also requires the login for the API's root, where clients find out how to
// log in.
func (i *Internet) guard(content http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		user, password, _ := request.BasicAuth()
		reads := request.Method == http.MethodGet || request.Method == http.MethodHead
		if user+":"+password != i.login && (!reads || request.URL.Path == "/v2/") {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		content.ServeHTTP(w, request)
	})
}

// connect forwards a client's connection to the registry. If the client requested another host, connect refuses the
// connection.
func (i *Internet) connect(w http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodConnect || request.Host != net.JoinHostPort(i.Host, "443") {
		i.mu.Lock()
		i.refused = append(i.refused, request.Host)
		i.mu.Unlock()
		http.Error(w, "this proxy only reaches "+i.Host, http.StatusForbidden)
		return
	}
	connection, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if _, err = io.WriteString(connection, "HTTP/1.1 200 OK\r\n\r\n"); err == nil {
		select {
		case i.connections <- connection:
			return
		case <-i.closed:
		}
	}
	_ = connection.Close() // Close was called, so no one will serve the connection
}

// Refused returns the names of all other hosts that clients requested, without duplicates.
func (i *Internet) Refused() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(i.refused)))
}

var _ net.Listener = (*Internet)(nil)

// Accept returns the next connection to the registry.
func (i *Internet) Accept() (net.Conn, error) {
	select {
	case connection := <-i.connections:
		return connection, nil
	case <-i.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept. Only the registry's server calls it.
func (i *Internet) Close() error {
	close(i.closed)
	return nil
}

// Addr implements net.Listener.
func (i *Internet) Addr() net.Addr { return &net.TCPAddr{} }
