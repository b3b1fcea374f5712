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

// Timeouts of a connection to a payload server, so that a dead one is noticed.
const (
	dialTimeout = 10 * time.Second
	keepAlive   = 30 * time.Second
	// answerTimeout is how long a payload server may take before it begins to answer: it says that
	// it is busy rather than keeping anybody waiting.
	answerTimeout = time.Minute
)

// NewClient makes a client for payload servers that show a certificate which chains to exactly
// these (PEM). It shows the certificate that it is given for each connection, so a renewed one is
// taken over. It knows no proxy, because payload servers are within the cluster.
func NewClient(ca []byte, certificate func() *tls.Certificate) (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return nil, errors.New("making a client for payload servers: there is no certificate to trust")
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
		// A source is made anew for each attempt.
		IdleConnTimeout: dialTimeout,
	}}, nil
}
