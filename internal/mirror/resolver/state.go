package resolver

import (
	"crypto/x509"
	"net/http"
	"net/url"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// Config holds the cluster's settings of pulls. It must not change after Update.
type Config struct {
	// Rules decide which registries a pull tries, their order, and the registries that a pull never contacts.
	Rules mirror.Rules
	// PullSecret holds the registries' credentials.
	PullSecret mirror.PullSecret
	// Roots are the CAs that are trusted for every registry: the node's root store. nil means the system's own.
	Roots *x509.CertPool
	// RegistryTrust are additional CAs for single registries: host or host:port → PEM bundle. Content that is no
	// certificate is ignored.
	RegistryTrust map[string]string
	// Proxy returns the proxy of a request, or nil for none. If Proxy is nil, no request uses a proxy.
	Proxy func(*http.Request) (*url.URL, error)
}

// state is one Config in use. A request keeps its first state.
type state struct {
	rules     mirror.Rules
	secret    mirror.PullSecret
	transport *transports
	keys      *keyring
	now       func() time.Time
	troubles  *memory[string, trouble] // by host, or host/repository
}

func newState(o Options, c Config) *state {
	way := newTransports(o, c)
	return &state{rules: c.Rules, secret: c.PullSecret, transport: way, now: o.Now,
		keys:     newKeyring(way, func(host string) bool { return c.Rules.Never(host, "") }, o.Now),
		troubles: newMemory[string, trouble](troublesKept, o.Now)}
}
