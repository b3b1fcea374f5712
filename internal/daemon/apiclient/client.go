package apiclient

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	clienttransport "k8s.io/client-go/transport"
	"k8s.io/client-go/util/connrotation"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Client is a connection to the API server.
type Client struct {
	Client  dynamic.Interface
	options Options
	dialer  *connrotation.Dialer
	pair    atomic.Pointer[tls.Certificate]
	// transport verifies the API server with the current CAs.
	transport atomic.Pointer[http.Transport]
}

// Options are the inputs of Open.
type Options struct {
	Files winos.Files
	// Server, Identity and Token are for Connect only. If Token is empty, the client authenticates with Identity.
	Server   Server
	Identity Identity
	Token    string
	// Kubeconfig is the path of the daemon's kubeconfig. Open reads only the API server's address and CA from it.
	Kubeconfig string
	// CABundle is the path of a file with additional trusted CAs, or empty. The file need not exist.
	CABundle string
	// UserAgent names the daemon and its version in the API server's audit log.
	UserAgent string
}

// With these timeouts, the daemon notices that the API server is dead.
const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
)

// Open prepares a connection to the API server in the daemon's kubeconfig. It sends nothing yet.
func Open(options Options) (*Client, error) {
	server, err := readKubeconfig(options.Files, options.Kubeconfig)
	if err != nil {
		return nil, err
	}
	options.Server, options.Identity = server, Daemon(options.Files, "")
	return Connect(options)
}

// Connect prepares a connection to Options.Server. It sends nothing yet.
func Connect(options Options) (*Client, error) {
	l := &Client{options: options,
		dialer: connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)}
	err := l.verifyBy(options.Server.CA)
	if err != nil {
		return nil, err
	}
	// client-go sets a user agent only in HTTP clients that it creates itself.
	named := clienttransport.NewUserAgentRoundTripper(options.UserAgent, l)
	if options.Token != "" {
		named = clienttransport.NewBearerAuthRoundTripper(options.Token, named)
		l.pair.Store(&tls.Certificate{})
	} else if err = l.Reload(); err != nil {
		return nil, err
	}
	l.Client, err = dynamic.NewForConfigAndClient(&rest.Config{Host: options.Server.URL, QPS: -1},
		&http.Client{Transport: named})
	if err != nil {
		return nil, fmt.Errorf("preparing the link to %s: %w", options.Server.URL, err)
	}
	return l, nil
}

// RoundTrip implements http.RoundTripper with the current transport.
func (l *Client) RoundTrip(request *http.Request) (*http.Response, error) {
	return l.transport.Load().RoundTrip(request)
}

// verifyBy makes new connections trust the CAs in the bundle ca, and the additional CAs in Options.CABundle.
func (l *Client) verifyBy(ca []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("there is no CA of the API server")
	}
	if err := addBundle(roots, l.options.Files, l.options.CABundle); err != nil {
		return err
	}
	before := l.transport.Swap(utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			RootCAs:    roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return l.pair.Load(), nil
			},
		},
		DialContext: l.dialer.DialContext,
		// The API server is always reached directly, regardless of a proxy in the environment.
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	}))
	if before != nil {
		before.CloseIdleConnections()
	}
	return nil
}

// Certificate returns the client certificate that the daemon presents to the API server.
func (l *Client) Certificate() *tls.Certificate { return l.pair.Load() }

// Reload reads the certificate from its file again. If the certificate has changed, Reload closes all connections: the
// API server checks a connection's certificate with each request, so requests on an open connection would fail when the
// old certificate expires.
func (l *Client) Reload() error {
	pair, err := l.options.Identity.LoadCertificate()
	if err != nil {
		return err
	}
	if before := l.pair.Swap(pair); before != nil && !before.Leaf.Equal(pair.Leaf) {
		l.dialer.CloseAll()
	}
	return nil
}

// Close ends all connections.
func (l *Client) Close() { l.dialer.CloseAll() }

func addBundle(roots *x509.CertPool, files winos.Files, path string) error {
	if path == "" {
		return nil
	}
	content, err := winos.ReadFile(files, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the CA bundle: %w", err)
	}
	roots.AppendCertsFromPEM(content)
	return nil
}
