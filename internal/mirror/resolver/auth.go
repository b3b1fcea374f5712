package resolver

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// keyring creates Authorization headers. If a source requires one, its answer says which kind. The keyring then creates
// or fetches it, and stores it for later requests.
type keyring struct {
	transport *transports
	// never reports whether no part of a registry may be contacted. host is a host as in addresses.
	never  func(host string) bool
	proofs *memory[grant, string]
}

// grant identifies a proof: the repository and the credential.
type grant struct {
	host, repository string
	credential       mirror.Credential
}

// The server says how long a token is valid. Without this, a token is valid for 60 s (the default of the token
// specification). The keyring drops it a little earlier. If a source refuses a stored proof, the keyring replaces
// it.
const (
	basicLife   = 10 * time.Minute
	tokenLife   = 60 * time.Second
	tokenMargin = 10 * time.Second
	// proofsKept bounds the number of stored proofs, one for each repository at each host.
	proofsKept = 1024
	// maxToken bounds the length of a stored token. A longer token, which many servers would refuse as a header, is
	// requested again for each use.
	maxToken = 8 << 10
)

func newKeyring(way *transports, never func(host string) bool, now func() time.Time) *keyring {
	return &keyring{transport: way, never: never, proofs: newMemory[grant, string](proofsKept, now)}
}

func (q question) grant() grant { return grant{q.at.Host, q.at.Repository, q.credential} }

// remembered returns the header that a source accepted before, or an empty string.
func (k *keyring) remembered(q question) string {
	if token := q.credential.RegistryToken; token != "" {
		return "Bearer " + token
	}
	header, _ := k.proofs.get(q.grant())
	return header
}

// prove returns the header that a source requires after it refused a request.
func (k *keyring) prove(ctx context.Context, q question, way http.RoundTripper, refused *http.Response) (string,
	error) {
	c := q.credential
	k.proofs.forget(q.grant())
	challenge, err := challengeOf(ctx, refused)
	switch {
	case c.RegistryToken != "":
	case err == nil && strings.EqualFold(challenge.Scheme, "bearer"):
		return k.token(ctx, q, way, challenge)
	case c.Username != "" || c.Password != "":
		header := "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password))
		k.proofs.put(q.grant(), header, basicLife)
		return header, nil
	}
	return "", refusal(refused)
}

// challengeOf parses the challenge of a refusal. The library does this only as part of a ping, so challengeOf passes
// the refusal as the answer to a ping.
func challengeOf(ctx context.Context, refused *http.Response) (*transport.Challenge, error) {
	somewhere, err := name.NewRegistry("registry.invalid")
	if err != nil {
		return nil, err
	}
	return transport.Ping(ctx, somewhere, roundTrip(func(request *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: refused.Header, Body: http.NoBody,
			Request: request}, nil
	}))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// token fetches a token for one repository.
func (k *keyring) token(ctx context.Context, q question, way http.RoundTripper,
	challenge *transport.Challenge) (string, error) {
	server, err := k.tokenServer(q.at, challenge)
	if err != nil {
		return "", err
	}
	token, err := transport.Exchange(ctx, server, authenticator(q.credential), settled{way},
		[]string{pullScope(q.at.Repository)}, challenge)
	if err != nil {
		return "", tokenFault(ctx, err)
	}
	header := "Bearer " + cmp.Or(token.AccessToken, token.Token)
	if len(header) <= maxToken {
		life := max(time.Duration(token.ExpiresIn)*time.Second, tokenLife) - tokenMargin
		k.proofs.put(q.grant(), header, min(life, time.Hour))
	}
	return header, nil
}

// tokenServer returns the host that a challenge names. The library accepts a host with a private address only if this
// host is the registry, so tokenServer passes it as the registry: behind firewalls, registries have private addresses.
// It refuses addresses of services on the node and in its cloud, because no token server is there.
func (k *keyring) tokenServer(at mirror.Pull, challenge *transport.Challenge) (name.Registry, error) {
	realm, err := url.Parse(challenge.Parameters["realm"])
	if err != nil || realm.Host == "" {
		return name.Registry{}, faultf(ReasonFailing, "it names no token server")
	}
	host, _ := mirror.SplitHost(realm.Host)
	address, _ := netip.ParseAddr(host)
	switch {
	case isOf(at, realm.Host):
	case k.never(realm.Host):
		return name.Registry{}, faultf(ReasonForbidden, "its token server is a registry that must never be contacted")
	case isLoopback(host) && !isLoopback((&url.URL{Host: at.Address()}).Hostname()), address.IsUnspecified(),
		address.IsLinkLocalUnicast(), address.IsMulticast(), host == "fd00:ec2::254":
		return name.Registry{}, faultf(ReasonForbidden, "its token server is a service of this machine or its cloud")
	}
	return k.registry(realm.Host)
}

// isOf reports whether a host, as in addresses, is the host of a source.
func isOf(at mirror.Pull, host string) bool {
	return mirror.CanonicalHost(host) == mirror.CanonicalHost(at.Host)
}

// tokenFault returns a fault of the token server. It drops the text of the answer, which must not get into a log.
func tokenFault(ctx context.Context, err error) *fault {
	var unanswered *url.Error
	var status *transport.Error
	f := faultOf(ctx, err)
	if f.reason == ReasonUnreachable && !errors.As(err, &unanswered) && !errors.As(err, &status) {
		f = faultf(ReasonFailing, "it gives no token")
	}
	f.detail = "token server: " + f.detail
	return f
}

// registry returns a host as the library's type.
func (k *keyring) registry(host string) (name.Registry, error) {
	options := []name.Option{name.StrictValidation}
	if k.transport.isPlain(host) {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(host, options...)
	if err != nil {
		return registry, faultf(ReasonUnknownHost, "not the name of a registry")
	}
	return registry, nil
}

func authenticator(c mirror.Credential) authn.Authenticator {
	if c == (mirror.Credential{}) {
		return authn.Anonymous
	}
	return authn.FromConfig(authn.AuthConfig{Username: c.Username, Password: c.Password,
		IdentityToken: c.IdentityToken})
}

// settled refuses redirects of a token server. Otherwise the redirect's target would receive the credential in the body
// or the header.
type settled struct{ transport http.RoundTripper }

func (s settled) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 3 {
		_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 4<<10))
		_ = response.Body.Close()
		return nil, errElsewhere
	}
	return response, nil
}
