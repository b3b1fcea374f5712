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

// grant identifies a proof, which is an Authorization header: the repository and the credential. If a source requires
// a proof, the answer of the source names the kind of proof. The resolver then creates or fetches the proof, and
// stores it for later requests.
type grant struct {
	at         mirror.Location
	credential mirror.Credential
}

const (
	// proofLife is the maximum time that a proof is stored. The lifetime of a token doesn't matter: if a source refuses a
	// stored proof, the resolver gets a new one.
	proofLife = time.Hour
	// proofsKept bounds the number of stored proofs, one for each repository at each host.
	proofsKept = 1024
	// maxToken bounds the length of a stored token. A longer token, which many servers would refuse as a header, is
	// requested again for each use.
	maxToken = 8 << 10
)

func (q question) grant() grant { return grant{q.at, q.pull.credential(q.at)} }

// remembered returns the header that a source accepted before, or an empty string.
func (q question) remembered() string {
	g := q.grant()
	if token := g.credential.RegistryToken; token != "" {
		return "Bearer " + token
	}
	header, _ := q.pull.state.proofs.get(g)
	return header
}

// prove returns the header that a source requires after it refused a request.
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
func (s *state) token(ctx context.Context, g grant, challenge *transport.Challenge) (string, error) {
	server, err := s.tokenServer(g.at, challenge)
	if err != nil {
		return "", err
	}
	token, err := transport.Exchange(ctx, server, authenticator(g.credential), settled{s.way(g.at)},
		[]string{pullScope(g.at.Path)}, challenge)
	if err != nil {
		f := faultOf(ctx, err) // without the text of the answer, which must not get into a log
		return "", faultf(f.reason, "token server: %s", f.detail)
	}
	header := "Bearer " + cmp.Or(token.AccessToken, token.Token)
	if len(header) <= maxToken {
		s.proofs.put(g, header, proofLife)
	}
	return header, nil
}

// tokenServer returns the host that a challenge names. Behind firewalls, registries and their token servers have
// private addresses. The library accepts a host with a private address only if this host is the registry, so
// tokenServer passes the host as the registry. tokenServer refuses addresses of services on the node and in its cloud,
// because no token server is there.
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

// settled refuses redirects of a token server. Otherwise the redirect's target would receive the credential in the body
// or the header.
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
