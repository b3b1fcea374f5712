package resolver

import (
	"crypto/x509"
	"net/http"
	"net/url"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// Config is what the cluster says about pulls. Nobody changes it once it was given.
type Config struct {
	// Rules say where a pull goes, in which order, and where never.
	Rules mirror.Rules
	// PullSecret holds the credentials for it.
	PullSecret mirror.PullSecret
	// Roots are the CAs that every registry may have its certificate from: the node's root
	// store. Nil is the system's own.
	Roots *x509.CertPool
	// RegistryTrust are further CAs, for one registry each: host or host:port → PEM bundle.
	// What is no certificate in it is left out.
	RegistryTrust map[string]string
	// Proxy says through which proxy a request goes, nil for none. Nil: no request goes through
	// any.
	Proxy func(*http.Request) (*url.URL, error)
}

// state is one Config at work. A request keeps the one that it began with.
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
