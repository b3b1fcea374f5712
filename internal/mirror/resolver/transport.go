package resolver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/response"
)

// transports sends the resolver's requests, including redirected requests and requests to token servers. It uses https
// and the cluster's proxy, and verifies certificates. Exception: see insecureTransport.
type transports struct {
	common  *http.Transport
	special map[string]*http.Transport // by host and port: registries with additional CAs
	lax     *lax                       // for insecure registries
	bare    *memory[string, bool]      // by host[:port]: insecure registries without TLS
}

func newTransports(o Options, c Config) *transports {
	r := &transports{common: newTransport(o, c, c.Roots), special: map[string]*http.Transport{},
		lax: newLax(newTransport(o, c, c.Roots)), bare: newMemory[string, bool](troublesKept)}
	for host, bundle := range c.RegistryTrust {
		pool := x509.NewCertPool()
		if c.Roots != nil {
			pool = c.Roots.Clone()
		}
		pool.AppendCertsFromPEM([]byte(bundle))
		r.special[authority("https", mirror.At(host, "").Address())] = newTransport(o, c, pool)
	}
	return r
}

func newTransport(o Options, c Config, roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		Proxy:                  c.Proxy,
		DialContext:            (&net.Dialer{Timeout: o.Connect, KeepAlive: 30 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    o.Connect,
		ExpectContinueTimeout:  time.Second,
		MaxIdleConnsPerHost:    8, // containerd fetches three layers of an image at a time
		IdleConnTimeout:        30 * time.Second,
		DisableCompression:     true,     // digests refer to the stored bytes
		ReadBufferSize:         64 << 10, // four TLS records
		MaxResponseHeaderBytes: response.MaxHeader,
		OnProxyConnectResponse: func(_ context.Context, _ *url.URL, _ *http.Request, response *http.Response) error {
			if response.StatusCode != http.StatusOK {
				return faultf(ReasonUnreachable, "the proxy says status %d", response.StatusCode)
			}
			return nil
		},
		// HTTP/2 is off: its flow control reduces the throughput of big layers, and one broken connection would break
		// all of them.
	}
}

func (r *transports) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.URL.Scheme != "https" {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, faultf(ReasonForbidden, "plain http is refused")
	}
	if special, ok := r.special[authority("https", request.URL.Host)]; ok {
		return special.RoundTrip(request)
	}
	return r.common.RoundTrip(request)
}

// authority is host:port in a unique form. If host has no port, the result has the default port of the scheme.
func authority(scheme, host string) string {
	name, port := mirror.SplitHost(host)
	if port == "" {
		if port = "443"; scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(name, port)
}
