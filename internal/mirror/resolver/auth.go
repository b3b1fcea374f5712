package resolver

import (
	"cmp"
	"context"
	"encoding/base64"
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

// grant is the key of a stored proof: the repository and the credential that the proof is for. A proof is the value of
// an Authorization header. If a source requires a proof, its answer names the kind of proof. The resolver then creates
// or fetches the proof, and stores it for later requests.
type grant struct {
	at         mirror.Location
	credential mirror.Credential
}

const (
	// proofLife is the maximum time that a proof is stored. The resolver doesn't need to know the lifetime of a token:
	// if a source refuses a stored proof, the resolver gets a new proof.
	proofLife = time.Hour
	// proofsKept is the maximum number of stored proofs. There is one proof for each repository at each host.
	proofsKept = 1024
	// maxToken is the maximum length of a stored token. Many servers would refuse a longer token as a header. The
	// resolver doesn't store a longer token, and requests a new token for each use.
	maxToken = 8 << 10
)

func (q question) grant() grant { return grant{q.at, q.pull.credential(q.at)} }

// `remembered` returns the Authorization header to try first: the credential's registry token, the header that the
// source accepted before, or an empty string.
func (q question) remembered() string {
	g := q.grant()
	if token := g.credential.RegistryToken; token != "" {
		return "Bearer " + token
	}
	header, _ := q.pull.state.proofs.get(g)
	return header
}

// prove returns the Authorization header that the answer `refused` requires. If there is no suitable credential, prove
// returns a fault.
func (q question) prove(ctx context.Context, refused *http.Response) (string, error) {
	s, g := q.pull.state, q.grant()
	c := g.credential
	s.proofs.forget(g)
	challenge, err := challengeOf(ctx, refused)
	switch {
	case c.RegistryToken != "":
	case err == nil && strings.EqualFold(challenge.Scheme, "bearer"):
		return s.token(ctx, g, challenge)
	case c.Username != "" || c.Password != "":
		header := "Basic " + base64.StdEncoding.EncodeToString([]byte(c.Username+":"+c.Password))
		s.proofs.put(g, header, proofLife)
		return header, nil
	}
	return "", refusal(refused.StatusCode)
}

// challengeOf parses the authentication challenge in a source's refusal. The library parses a challenge only as part of
// a ping, so challengeOf passes the refusal to the library as the answer to a ping.
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

// token fetches a token for one repository. It stores and returns an Authorization header with this token.
func (s *state) token(ctx context.Context, g grant, challenge *transport.Challenge) (string, error) {
	server, err := s.tokenServer(g.at, challenge)
	if err != nil {
		return "", err
	}
	token, err := transport.Exchange(ctx, server, authenticator(g.credential), settled{s.way(g.at)},
		[]string{pullScope(g.at.Path)}, challenge)
	if err != nil {
		f := faultOf(ctx, err) // the answer's text must not get into a log, so faultOf omits it
		return "", faultf(f.reason, "token server: %s", f.detail)
	}
	header := "Bearer " + cmp.Or(token.AccessToken, token.Token)
	if len(header) <= maxToken {
		s.proofs.put(g, header, proofLife)
	}
	return header, nil
}

// tokenServer returns the address of the token server that a challenge names. Behind firewalls, registries and their
// token servers have private addresses, but the library accepts a private address only for the registry itself. So
// tokenServer returns the token server in the form of a registry. It refuses addresses of services on the node and in
// the node's cloud, because no token server has such an address.
func (s *state) tokenServer(at mirror.Location, challenge *transport.Challenge) (name.Registry, error) {
	realm, err := url.Parse(challenge.Parameters["realm"])
	if err != nil || realm.Host == "" {
		return name.Registry{}, faultf(ReasonFailing, "it names no token server")
	}
	to := mirror.At(realm.Host, "")
	host, _ := mirror.SplitHost(realm.Host)
	address, _ := netip.ParseAddr(host)
	switch {
	case to.Host == at.Host:
	case s.Rules.Never(to):
		return name.Registry{}, faultf(ReasonForbidden, "its token server is a registry that must never be contacted")
	case to.IsLoopback() && !at.IsLoopback(), address.IsUnspecified(), address.IsLinkLocalUnicast(),
		address.IsMulticast(), host == "fd00:ec2::254":
		return name.Registry{}, faultf(ReasonForbidden, "its token server is a service of this machine or its cloud")
	}
	registry, err := name.NewRegistry(realm.Host, name.StrictValidation)
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

// `settled` is the transport for requests to token servers. It refuses redirects. Otherwise the target of a redirect
// would receive the credential, which is in the body or in a header.
type settled struct{ transport http.RoundTripper }

func (s settled) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.transport.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 == 3 {
		discard(response)
		return nil, faultf(ReasonForbidden, "it redirects")
	}
	return response, nil
}
