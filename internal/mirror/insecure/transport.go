// Package insecure contacts a registry that the cluster calls insecure, and accepts any certificate. The mirror
// resolver uses it, and so does the operator when it pulls a payload. The caller decides which registries are insecure.
// The package always checks the certificate of a proxy, because a proxy receives a password.
package insecure

import (
	"crypto/tls"
	"net"
	"net/http"
)

// Transport checks only the certificate of a proxy.
type Transport struct{ direct, proxied *http.Transport }

var _ http.RoundTripper = (*Transport)(nil)

// New returns a transport that accepts any certificate of a registry. In everything else it behaves like strict.
func New(strict *http.Transport) *Transport {
	t := &Transport{direct: strict.Clone(), proxied: strict.Clone()}
	t.direct.Proxy = nil
	proxy := strict.TLSClientConfig.Clone()
	proxy.NextProtos = nil // net/http speaks HTTP/1.1 to proxies
	// net/http uses DialTLSContext only for the connection to the proxy, and TLSClientConfig for the registry behind
	// it.
	t.proxied.DialTLSContext = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 2 * strict.TLSHandshakeTimeout},
		Config: proxy}).DialContext
	t.direct.TLSClientConfig.InsecureSkipVerify = true // only for registries that the administrator calls insecure
	t.proxied.TLSClientConfig.InsecureSkipVerify = true
	return t
}

// RoundTrip is http.RoundTripper.
func (t *Transport) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.proxied.Proxy != nil {
		if proxy, err := t.proxied.Proxy(request); proxy != nil || err != nil {
			return t.proxied.RoundTrip(request)
		}
	}
	return t.direct.RoundTrip(request)
}

// CloseIdleConnections closes unused connections.
func (t *Transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
