package resolver

import (
	"net/http"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// insecureTransport is the way to one registry that the cluster calls insecure: any certificate will do, and
// if it can't be reached by TLS, it may speak plain http, as on Linux nodes. Whoever it sends us on
// to is checked like everybody else.
type insecureTransport struct {
	*transports
	host string // as in addresses, in lower case
}

// bareLife is how long it is remembered that a registry speaks no TLS.
const bareLife = 10 * time.Minute

// way is the transport to a place.
func (s *state) way(at mirror.Pull) http.RoundTripper {
	if s.rules.Insecure(at.Host, at.Repository) {
		return insecureTransport{s.transport, strings.ToLower(at.Address())}
	}
	return s.transport
}

// RoundTrip implements http.RoundTripper. A request is sent twice if need be; the body of one to
// the registry's own token server can be had again.
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
