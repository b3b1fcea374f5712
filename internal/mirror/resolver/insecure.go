package resolver

import (
	"crypto/tls"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// insecureTransport sends requests to one registry that the cluster calls insecure. It accepts any certificate of this
// registry. If a request with TLS fails, it uses plain http, as Linux nodes do. For other hosts, such as the targets of
// redirects, it checks certificates as usual.
type insecureTransport struct {
	*transports
	host string // host and port of the registry as in addresses, in lower case
}

// bareLife is how long the transport remembers that a registry doesn't use TLS.
const bareLife = 10 * time.Minute

func (s *state) way(at mirror.Location) http.RoundTripper {
	if s.Rules.Insecure(at) {
		return insecureTransport{s.transport, strings.ToLower(at.Address())}
	}
	return s.transport
}

// RoundTrip implements http.RoundTripper. It may send a request twice: with TLS and without. Only requests to the
// registry's own token server have a body, and RoundTrip can read such a body twice.
func (l insecureTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.ToLower(request.URL.Host) != l.host {
		return l.transports.RoundTrip(request)
	}
	plain := request.Clone(request.Context())
	plain.URL.Scheme = "http"
	if request.GetBody != nil {
		body, err := request.GetBody()
		if err != nil {
			return nil, err
		}
		plain.Body = body
		defer body.Close()
	}
	if _, known := l.bare.get(l.host); known || request.URL.Scheme == "http" {
		response, err := l.lax.RoundTrip(plain)
		if err != nil {
			l.bare.forget(l.host)
		}
		return response, err
	}
	response, err := l.lax.RoundTrip(request)
	if err == nil || request.Context().Err() != nil {
		return response, err
	}
	response, second := l.lax.RoundTrip(plain)
	if second != nil {
		return nil, err
	}
	l.bare.put(l.host, true, bareLife)
	return response, nil
}

// `lax` accepts any certificate of a registry, but checks a proxy's certificate, because the proxy receives a password.
type lax struct{ direct, proxied *http.Transport }

// newLax returns a lax transport. Except for the checks of certificates, it behaves like the transport `strict`.
func newLax(strict *http.Transport) *lax {
	t := &lax{direct: strict.Clone(), proxied: strict.Clone()}
	t.direct.Proxy = nil
	proxy := strict.TLSClientConfig.Clone()
	proxy.NextProtos = nil // net/http speaks HTTP/1.1 to proxies
	// net/http uses DialTLSContext only for the connection to the proxy, and TLSClientConfig for the registry behind
	// the proxy.
	t.proxied.DialTLSContext = (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 2 * strict.TLSHandshakeTimeout},
		Config: proxy}).DialContext
	t.direct.TLSClientConfig.InsecureSkipVerify = true // only for registries that the administrator calls insecure
	t.proxied.TLSClientConfig.InsecureSkipVerify = true
	return t
}

func (t *lax) RoundTrip(request *http.Request) (*http.Response, error) {
	if t.proxied.Proxy != nil {
		if proxy, err := t.proxied.Proxy(request); proxy != nil || err != nil {
			return t.proxied.RoundTrip(request)
		}
	}
	return t.direct.RoundTrip(request)
}
