package resolver

import (
	"crypto/x509"
	"net/http"
	"net/url"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// Config has the cluster's settings for pulls. After the call of Update, it must not change.
type Config struct {
	// Rules decide which registries a pull tries, their order, and the registries that a pull never contacts.
	Rules      mirror.Rules
	PullSecret mirror.PullSecret
	// Roots are the CAs that are trusted for every registry: the node's root store. nil means Go's default roots.
	Roots *x509.CertPool
	// RegistryTrust are CAs for single registries, in addition to Roots: host or host:port → PEM bundle. Content that
	// is not a certificate is ignored.
	RegistryTrust map[string]string
	// Proxy returns the proxy of a request, or nil for none. If Proxy is nil, no request uses a proxy.
	Proxy func(*http.Request) (*url.URL, error)
}

// state is one Config in use, with its remembered proofs and troubles. A request uses the same state until it ends.
type state struct {
	Config
	transport *transports
	proofs    *memory[grant, string]
	troubles  *memory[mirror.Location, Reason] // of registries and repositories
}

func newState(o Options, c Config) *state {
	return &state{Config: c, transport: newTransports(o, c), proofs: newMemory[grant, string](proofsKept),
		troubles: newMemory[mirror.Location, Reason](troublesKept)}
}
