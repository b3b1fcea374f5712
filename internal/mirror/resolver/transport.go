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
	"github.com/windows-nodes/wmco/internal/mirror/insecure"
	"github.com/windows-nodes/wmco/internal/response"
)

// transports send all requests of the resolver, including redirected ones and requests to token servers: over https,
// with checked certificates, through the cluster's proxy.
type transports struct {
	common  *http.Transport
	special map[string]*http.Transport // by host and port: registries with additional CAs
	lax     *insecure.Transport        // checks no certificate of a registry
	bare    *memory[string, bool]      // by host[:port]: insecure registries that speak no TLS
}

func newTransports(o Options, c Config) *transports {
	r := &transports{common: newTransport(o, c, c.Roots), special: map[string]*http.Transport{},
		lax: insecure.New(newTransport(o, c, c.Roots)), bare: newMemory[string, bool](troublesKept, o.Now)}
	for host, bundle := range c.RegistryTrust {
		pool := c.Roots
		if pool == nil {
			// If the system's own CAs can't be read, use only the configured ones.
			if pool, _ = x509.SystemCertPool(); pool == nil {
				pool = x509.NewCertPool()
			}
		} else {
			pool = pool.Clone()
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
		DisableCompression:     true,     // digests are of what is stored
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

func (r *transports) closeIdle() {
	r.common.CloseIdleConnections()
	r.lax.CloseIdleConnections()
	for _, t := range r.special {
		t.CloseIdleConnections()
	}
}

// authority is host:port in one form, with the default port of the scheme.
func authority(scheme, host string) string {
	name, port := mirror.SplitHost(host)
	if port == "" {
		if port = "443"; scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(name, port)
}
