package resolver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/insecure"
	"github.com/windows-nodes/wmco/internal/response"
)

// transports are the one way out: https, certificates checked, through the cluster's proxy. Everything
// that leaves the resolver takes it, requests to token servers and redirected ones included.
type transports struct {
	plain   []string // host:port of registries on loopback that speak no TLS
	common  *http.Transport
	special map[string]*http.Transport // by host and port: registries with CAs of their own
	lax     *insecure.Transport        // checks no certificate of a registry
	bare    *memory[string, bool]      // by host[:port]: insecure registries that were found to speak no TLS
}

func newTransports(o Options, c Config) *transports {
	r := &transports{plain: o.PlainLoopback, common: newTransport(o, c, c.Roots), special: map[string]*http.Transport{},
		lax: insecure.New(newTransport(o, c, c.Roots)), bare: newMemory[string, bool](troublesKept, o.Now)}
	for host, bundle := range c.RegistryTrust {
		pool := c.Roots
		if pool == nil {
			// Without the system's own there are still those that were given.
			if pool, _ = x509.SystemCertPool(); pool == nil {
				pool = x509.NewCertPool()
			}
		} else {
			pool = pool.Clone()
		}
		pool.AppendCertsFromPEM([]byte(bundle))
		r.special[authority("https", mirror.Pull{Host: strings.ToLower(host)}.Address())] = newTransport(o, c, pool)
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
		// No HTTP/2: its flow control costs throughput on big layers, and one broken connection
		// would break all of them.
	}
}

func (r *transports) RoundTrip(request *http.Request) (*http.Response, error) {
	if !r.permits(request.URL) {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, errPlain
	}
	return r.to(request.URL).RoundTrip(request)
}

func (r *transports) to(u *url.URL) *http.Transport {
	if special, ok := r.special[authority(u.Scheme, u.Host)]; ok {
		return special
	}
	return r.common
}

// permits says whether an address may be asked at all.
func (r *transports) permits(u *url.URL) bool {
	return (u.Scheme == "https") != r.isPlain(u.Host) && (u.Scheme == "https" || u.Scheme == "http")
}

// isPlain says whether a registry was declared to speak plain http. It is believed of this
// machine's own addresses only.
func (r *transports) isPlain(host string) bool {
	return slices.Contains(r.plain, host) && isLoopback((&url.URL{Host: host}).Hostname())
}

func (r *transports) closeIdle() {
	r.common.CloseIdleConnections()
	r.lax.CloseIdleConnections()
	for _, t := range r.special {
		t.CloseIdleConnections()
	}
}

func isLoopback(host string) bool {
	host = strings.TrimSuffix(host, ".")
	address, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && address.IsLoopback()
}

// authority is host:port in one form, with the port that the scheme implies.
func authority(scheme, host string) string {
	name, port := mirror.SplitHost(host)
	if port == "" {
		if port = "443"; scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(name, port)
}
