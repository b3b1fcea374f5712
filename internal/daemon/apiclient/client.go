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
	// Client speaks to it.
	Client     dynamic.Interface
	files      winos.Files
	kubeconfig string
	caBundle   string
	dialer     *connrotation.Dialer
	pair       atomic.Pointer[tls.Certificate]
	// transport verifies the API server by the CAs of now.
	transport atomic.Pointer[http.Transport]
}

// Options say where things are.
type Options struct {
	Files winos.Files
	// Kubeconfig is the path of the daemon's kubeconfig. Only the server's address and CA are taken
	// from it; the certificate is the daemon's own.
	Kubeconfig string
	// CABundle is the path of further trusted CAs, or empty. The file need not exist.
	CABundle string
	// UserAgent names the daemon and its version in the API server's audit log.
	UserAgent string
}

// Timeouts of a connection, so that a dead API server is noticed.
const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
)

// Open prepares the link. It sends nothing yet.
func Open(options Options) (*Client, error) {
	server, err := readKubeconfig(options.Files, options.Kubeconfig)
	if err != nil {
		return nil, err
	}
	l := &Client{files: options.Files, kubeconfig: options.Kubeconfig, caBundle: options.CABundle,
		dialer: connrotation.NewDialer((&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext)}
	if err = errors.Join(l.verifyBy(server.CA), l.Reload()); err != nil {
		return nil, err
	}
	// A client of one's own does not name itself: only those that client-go makes do.
	named := clienttransport.NewUserAgentRoundTripper(options.UserAgent, l)
	l.Client, err = dynamic.NewForConfigAndClient(&rest.Config{Host: server.URL, QPS: -1},
		&http.Client{Transport: named})
	if err != nil {
		return nil, fmt.Errorf("preparing the link to %s: %w", server.URL, err)
	}
	return l, nil
}

// RoundTrip is for http.Client.
func (l *Client) RoundTrip(request *http.Request) (*http.Response, error) {
	return l.transport.Load().RoundTrip(request)
}

// verifyBy has the API server be verified by a bundle, and by what is trusted beside, on the next connections.
func (l *Client) verifyBy(ca []byte) error {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return errors.New("there is no CA of the API server")
	}
	if err := addBundle(roots, l.files, l.caBundle); err != nil {
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
		// The internal API server is always reached directly, whatever proxy the system environment
		// names.
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
	}))
	if before != nil {
		before.CloseIdleConnections()
	}
	return nil
}

// Certificate is the certificate that is shown to the API server.
func (l *Client) Certificate() *tls.Certificate { return l.pair.Load() }

// Reload takes the certificate from its file again and closes the connections that were made with
// another: the API server looks at a connection's certificate with each request, so one that stays
// open would end with the old one.
func (l *Client) Reload() error {
	pair, err := LoadCertificate(l.files)
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
