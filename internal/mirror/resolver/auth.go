package resolver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sync/singleflight"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// keyring makes Authorization headers: it asks each registry once how it wants to be convinced, and
// each token server once for a token.
type keyring struct {
	transport *transports
	// never says of a registry, as addresses name it, that nothing of it must be contacted.
	never      func(host string) bool
	limit      time.Duration // of one request
	share      time.Duration // for how long others may wait for the same
	now        func() time.Time
	challenges *memory[challenged, transport.Challenge]
	tokens     *memory[grant, string]
	flights    singleflight.Group
}

// challenged is a registry that was asked how it wants to be convinced, or one of its repositories
// that said so by itself. What one said whose certificate was not checked is not believed where it
// must be.
type challenged struct {
	host       string
	repository string // empty for the registry
	lax        bool
}

// grant is what a token is for, and who it was given to.
type grant struct {
	host, repository string
	credential       mirror.Credential
}

// flight names the request for a token. A credential has no text of its own.
func (g grant) flight() string {
	c := g.credential
	sum := sha256.New()
	for _, part := range []string{g.host, g.repository, c.Username, c.Password, c.IdentityToken} {
		_, _ = fmt.Fprintf(sum, "%d %s", len(part), part)
	}
	return "token " + string(sum.Sum(nil))
}

// proof is what is sent as Authorization.
type proof struct {
	header string // empty for nothing
	grant  grant
	// fresh says that nothing of it was remembered, so that asking again would not help.
	fresh bool
}

// How long answers are believed. A token lives as long as its server says, 60 s if that says
// nothing (the token specification's default), and is given up a little earlier than it ends. How a
// registry authenticates hardly ever changes; a 401 makes us ask again anyway.
const (
	challengeLife = 10 * time.Minute
	tokenLife     = 60 * time.Second
	tokenMargin   = 10 * time.Second
)

// Bounds of what is kept: tokens, one for each repository at each host, and parts of answers. A
// longer token, which many servers would refuse as a header, is requested again for each use.
const (
	grants       = 1024
	maxToken     = 8 << 10
	maxParameter = 2 << 10
)

func newKeyring(way *transports, never func(host string) bool, o Options) *keyring {
	return &keyring{transport: way, never: never, limit: o.FirstByte, share: o.Connect, now: o.Now,
		challenges: newMemory[challenged, transport.Challenge](hosts, o.Now),
		tokens:     newMemory[grant, string](grants, o.Now)}
}

// proof is what a place wants to see of a credential.
func (k *keyring) proof(ctx context.Context, at mirror.Pull, way http.RoundTripper,
	credential mirror.Credential) (proof, error) {
	p := proof{grant: grant{at.Host, at.Repository, credential}, fresh: true}
	if credential.RegistryToken != "" {
		p.header = "Bearer " + credential.RegistryToken
		return p, nil
	}
	challenge, fresh, err := k.challenge(ctx, at, way)
	p.fresh = fresh
	switch {
	case err != nil:
		return p, err
	case strings.EqualFold(challenge.Scheme, "bearer"):
		token, freshToken, err := k.token(ctx, at, way, challenge, p.grant)
		p.header, p.fresh = "Bearer "+token, fresh && freshToken
		if err != nil && !fresh {
			k.forgetChallenges(at) // the server that was remembered may be the one of yesterday
		}
		return p, err
	case credential.Username != "" || credential.Password != "":
		p.header = "Basic " + base64.StdEncoding.EncodeToString([]byte(credential.Username+":"+credential.Password))
	}
	return p, nil
}

// learn takes in that a proof was refused, and says whether another one may do. What was remembered
// is forgotten; a newer token, which another request has got meanwhile, stays. A registry that
// asked for nothing may ask for a token now, for this repository. A user and password it was shown
// anyway.
func (k *keyring) learn(ctx context.Context, at mirror.Pull, way http.RoundTripper, refused proof,
	response *http.Response) bool {
	key := askedOf(at, way)
	if token, ok := k.tokens.get(refused.grant); ok && "Bearer "+token == refused.header {
		k.tokens.forget(refused.grant)
	}
	k.forgetChallenges(at)
	if !strings.HasPrefix(refused.header, "Bearer ") {
		key.repository = at.Repository
		if late, ok := parseChallenge(ctx, response); ok {
			k.challenges.put(key, kept(late), challengeLife)
			return true
		}
	}
	return !refused.fresh
}

// forgetChallenges has the next request ask the registry and the repository anew.
func (k *keyring) forgetChallenges(at mirror.Pull) {
	for _, lax := range []bool{false, true} {
		for _, repository := range []string{"", at.Repository} {
			k.challenges.forget(challenged{host: at.Host, repository: repository, lax: lax})
		}
	}
}

// parseChallenge reads which token a response asks for. The library has this only as part of a
// ping, so the response is given to it as the answer to one.
func parseChallenge(ctx context.Context, response *http.Response) (transport.Challenge, bool) {
	somewhere, err := name.NewRegistry("registry.invalid")
	if err != nil {
		return transport.Challenge{}, false
	}
	found, err := transport.Ping(ctx, somewhere, roundTrip(func(request *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusUnauthorized, Header: response.Header, Body: http.NoBody,
			Request: response.Request}, nil
	}))
	if err != nil || !strings.EqualFold(found.Scheme, "bearer") {
		return transport.Challenge{}, false
	}
	return *found, true
}

// kept is what is needed of a challenge. Each of its texts is a part of the header that it was read
// from, and would hold on to all of that.
func kept(c transport.Challenge) transport.Challenge {
	short := transport.Challenge{Insecure: c.Insecure, Parameters: map[string]string{}}
	if strings.EqualFold(c.Scheme, "bearer") {
		short.Scheme = "bearer"
	}
	for _, name := range []string{"realm", "service"} {
		if value := c.Parameters[name]; value != "" && len(value) <= maxParameter {
			short.Parameters[name] = strings.Clone(value)
		}
	}
	return short
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

func askedOf(at mirror.Pull, way http.RoundTripper) challenged {
	_, lax := way.(insecureTransport)
	return challenged{host: at.Host, lax: lax}
}

func (k *keyring) challenge(ctx context.Context, at mirror.Pull, way http.RoundTripper) (transport.Challenge, bool,
	error) {
	asked := askedOf(at, way)
	late := asked
	late.repository = at.Repository
	for _, key := range []challenged{late, asked} {
		if known, ok := k.challenges.get(key); ok {
			return known, false, nil
		}
	}
	found, err := once(ctx, k, fmt.Sprintf("ping %s %t", asked.host, asked.lax),
		func(ctx context.Context) (transport.Challenge, error) {
			if known, ok := k.challenges.get(asked); ok {
				return known, nil // of who asked a moment ago
			}
			registry, err := k.registry(at.Address())
			if err != nil {
				return transport.Challenge{}, err
			}
			seen := &httpsFailure{transport: way,
				forbidden: func(host string) bool { return !isOf(at, host) && k.never(host) }}
			challenge, err := transport.Ping(ctx, registry, seen)
			if err != nil {
				return transport.Challenge{}, faultOf(ctx, cmp.Or(seen.seen(), err))
			}
			short := kept(*challenge)
			k.challenges.put(asked, short, challengeLife)
			return short, nil
		})
	return found, true, err
}

func (k *keyring) token(ctx context.Context, at mirror.Pull, way http.RoundTripper, challenge transport.Challenge,
	wanted grant) (string, bool, error) {
	if known, ok := k.tokens.get(wanted); ok {
		return known, false, nil
	}
	found, err := once(ctx, k, wanted.flight(), func(ctx context.Context) (string, error) {
		if known, ok := k.tokens.get(wanted); ok {
			return known, nil // of who asked a moment ago
		}
		server, err := k.tokenServer(at, challenge)
		if err != nil {
			return "", err
		}
		token, err := transport.Exchange(ctx, server, authenticator(wanted.credential), settled{way},
			[]string{pullScope(at.Repository)}, &challenge)
		if err != nil {
			return "", tokenFault(ctx, err)
		}
		text := cmp.Or(token.AccessToken, token.Token)
		life := max(time.Duration(token.ExpiresIn)*time.Second, tokenLife) - tokenMargin
		if len(text) <= maxToken {
			k.tokens.put(wanted, text, min(life, time.Hour))
		}
		return text, nil
	})
	return found, true, err
}

// tokenServer is the host that a challenge names. The library asks one at a private address only if
// that is the registry itself, so it is told that it is: behind firewalls that is where registries
// live. What no token server is at are services of the node and of its cloud.
func (k *keyring) tokenServer(at mirror.Pull, challenge transport.Challenge) (name.Registry, error) {
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

// once does something for all who want it at about the same time. It goes on when the first of them
// goes away, so it has a time limit of its own. Who comes when it has been under way for a while,
// as when nobody answers, begins anew, and so does who has more time than that.
func once[T any](ctx context.Context, k *keyring, what string, do func(context.Context) (T, error)) (T, error) {
	var none T
	for {
		results := k.flights.DoChan(what, func() (any, error) {
			old := time.AfterFunc(k.share, func() { k.flights.Forget(what) })
			defer old.Stop()
			ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), k.limit, errSlow)
			defer cancel()
			return do(ctx)
		})
		select {
		case <-ctx.Done():
			return none, ctx.Err()
		case result := <-results:
			var f *fault
			switch {
			case result.Err == nil:
				return result.Val.(T), nil
			case errors.As(result.Err, &f) && f.reason == ReasonSlow && ctx.Err() == nil:
			default:
				return none, result.Err
			}
		}
	}
}

// httpsFailure remembers why https failed. Ping tries plain http as well at addresses that it takes
// for private, where it is refused, and that is then the only thing that it talks about. Ping
// follows redirects, but not to a registry that is forbidden.
type httpsFailure struct {
	transport http.RoundTripper
	forbidden func(host string) bool
	mu        sync.Mutex
	err       error
}

func (w *httpsFailure) RoundTrip(request *http.Request) (response *http.Response, err error) {
	if w.forbidden(request.URL.Host) {
		err = errForbidden
	} else {
		response, err = w.transport.RoundTrip(request)
	}
	if err != nil && !errors.Is(err, errPlain) {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}
	return response, err
}

func (w *httpsFailure) seen() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
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
