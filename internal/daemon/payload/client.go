package payload

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/windows-nodes/wmco/internal/response"
)

// With these timeouts, the daemon notices that a payload server is dead.
const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
	// answerTimeout limits the wait for a response's first byte. A busy server responds at once that it is busy.
	answerTimeout = time.Minute
)

// NewClient returns a client that accepts a payload server only if a CA in ca (PEM) has signed its certificate. The
// client calls `certificate` for each connection, so that it presents a renewed certificate. The client uses no proxy,
// because payload servers are inside the cluster.
func NewClient(ca []byte, certificate func() *tls.Certificate) (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("creating a client for payload servers: there is no CA certificate")
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, RootCAs: roots,
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return certificate(),
					nil
			},
		},
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  answerTimeout,
		MaxResponseHeaderBytes: response.MaxHeader,
		Proxy:                  func(*http.Request) (*url.URL, error) { return nil, nil },
		// Each attempt creates a new client. So idle connections of earlier clients must be closed soon.
		IdleConnTimeout: dialTimeout,
	}}, nil
}
