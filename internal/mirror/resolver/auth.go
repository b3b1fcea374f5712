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

// keyring makes Authorization headers. A source that wants one says in its answer which kind; the
// keyring then fetches it, and remembers it for later requests.
type keyring struct {
	transport *transports
	// never says of a registry, as addresses name it, that nothing of it may be contacted.
	never  func(host string) bool
	proofs *memory[grant, string]
}

// grant is what a proof is for, and whose it is.
type grant struct {
	host, repository string
	credential       mirror.Credential
}

// A token lives as long as its server says, 60 s if that says nothing (the token specification's
// default), and is given up a little earlier. A remembered proof that is refused is replaced.
const (
	basicLife   = 10 * time.Minute
	tokenLife   = 60 * time.Second
	tokenMargin = 10 * time.Second
	// proofsKept bounds the memory: one for each repository at each host.
	proofsKept = 1024
	// maxToken bounds what is remembered. A longer token, which many servers would refuse as a header,
	// is requested again for each use.
	maxToken = 8 << 10
)

func newKeyring(way *transports, never func(host string) bool, now func() time.Time) *keyring {
	return &keyring{transport: way, never: never, proofs: newMemory[grant, string](proofsKept, now)}
}

func (q question) grant() grant { return grant{q.at.Host, q.at.Repository, q.credential} }

// remembered is the header that a source accepted before; empty if there is none.
func (k *keyring) remembered(q question) string {
	if token := q.credential.RegistryToken; token != "" {
		return "Bearer " + token
	}
	header, _ := k.proofs.get(q.grant())
	return header
}

// prove makes the header that a source asks for when it refuses a request.
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

// challengeOf reads what a refusal asks for. The library does this only as part of a ping, so the
// refusal is given to it as the answer to one.
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

// tokenServer is the host that a challenge names. The library asks one at a private address only if
// that is the registry itself, so it is told that it is: behind firewalls that is where registries
// live. What no token server is at are services of the node and of its cloud.
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

// isOf says whether a host, as addresses have it, is that of a place.
func isOf(at mirror.Pull, host string) bool {
	return mirror.CanonicalHost(host) == mirror.CanonicalHost(at.Host)
}

// tokenFault says that it was the token server, whose answers are not for a log.
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

// registry is a host as the library has it.
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

// settled lets nothing through but the first request's host: a token server that redirects would be
// handed the credential in the body or the header.
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
