// Package insecure answers how a registry is contacted that the cluster calls insecure: with any certificate. The
// mirror resolver uses it, and the operator where it pulls a payload. It never decides which registries these are, and
// never takes a proxy without checking its certificate, because a proxy is sent a password.
package insecure

import (
	"crypto/tls"
	"net"
	"net/http"
)

// Transport checks no certificate but that of a proxy.
type Transport struct{ direct, proxied *http.Transport }

var _ http.RoundTripper = (*Transport)(nil)

// New makes a transport that differs from one that checks every certificate in nothing else.
func New(strict *http.Transport) *Transport {
	t := &Transport{direct: strict.Clone(), proxied: strict.Clone()}
	t.direct.Proxy = nil
	proxy := strict.TLSClientConfig.Clone()
	proxy.NextProtos = nil // net/http speaks HTTP/1.1 to proxies
	// Net/http takes this one to the proxy alone, and TLSClientConfig to the registry behind it.
	t.proxied.DialTLSContext = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 2 * strict.TLSHandshakeTimeout},
		Config: proxy}).DialContext
	t.direct.TLSClientConfig.InsecureSkipVerify = true // only of what the administrator calls insecure
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

// CloseIdleConnections closes the connections that nobody uses.
func (t *Transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
