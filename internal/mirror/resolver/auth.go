package resolver

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
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
	secret     mirror.PullSecret
	road       *road
	patience   time.Duration
	now        func() time.Time
	challenges *memory[challenged, transport.Challenge]
	tokens     *memory[mirror.Pull, string]
	flights    singleflight.Group
}

// challenged is a registry that was asked how it wants to be convinced. What one said whose
// certificate was not checked is not believed where it must be.
type challenged struct {
	host string
	lax  bool
}

func askedOf(at mirror.Pull, way http.RoundTripper) challenged {
	_, lax := way.(laxRoad)
	return challenged{at.Host, lax}
}

// How long answers are believed. A token lives as long as its server says, 60 s if that says
// nothing (the token specification's default), and is given up a little earlier than it ends. How a
// registry authenticates hardly ever changes; a 401 makes us ask again anyway.
const (
	challengeLife = 10 * time.Minute
	tokenLife     = 60 * time.Second
	tokenMargin   = 10 * time.Second
)

// grants bounds the tokens that are kept: one for each repository at each host.
const grants = 1024

func newKeyring(secret mirror.PullSecret, way *road, o Options) *keyring {
	return &keyring{secret: secret, road: way, patience: o.Patience, now: o.Now,
		challenges: newMemory[challenged, transport.Challenge](hosts, o.Now),
		tokens:     newMemory[mirror.Pull, string](grants, o.Now)}
}

// header is what to send as Authorization, or nothing. Fresh says that nothing of it was
// remembered, so that asking again would not help.
func (k *keyring) header(ctx context.Context, at mirror.Pull, way http.RoundTripper) (header string, fresh bool,
	err error) {
	at.Source = false
	credential, _ := k.secret.For(at.Host, at.Repository)
	if credential.RegistryToken != "" {
		return "Bearer " + credential.RegistryToken, true, nil
	}
	challenge, fresh, err := k.challenge(ctx, at, way)
	if err != nil {
		return "", fresh, err
	}
	if strings.EqualFold(challenge.Scheme, "bearer") {
		token, freshToken, err := k.token(ctx, at, way, challenge, credential)
		return "Bearer " + token, fresh && freshToken, err
	}
	if credential.Username == "" && credential.Password == "" {
		return "", fresh, nil
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(credential.Username+":"+credential.Password)), fresh, nil
}

// forget drops what is remembered about a place, because the header made of it was refused. A newer
// token, which another request has got meanwhile, stays.
func (k *keyring) forget(at mirror.Pull, refused string) {
	at.Source = false
	for _, lax := range []bool{false, true} {
		k.challenges.forget(challenged{at.Host, lax})
	}
	if token, ok := k.tokens.get(at); ok && "Bearer "+token == refused {
		k.tokens.forget(at)
	}
}

func (k *keyring) challenge(ctx context.Context, at mirror.Pull, way http.RoundTripper) (transport.Challenge, bool,
	error) {
	asked := askedOf(at, way)
	if known, ok := k.challenges.get(asked); ok {
		return known, false, nil
	}
	found, err := once(ctx, k, fmt.Sprintf("ping %s %t", asked.host, asked.lax),
		func(ctx context.Context) (transport.Challenge, error) {
			registry, err := k.registry(at)
			if err != nil {
				return transport.Challenge{}, err
			}
			seen := &witness{road: way}
			challenge, err := transport.Ping(ctx, registry, seen)
			if err != nil {
				return transport.Challenge{}, faultOf(ctx, cmp.Or(seen.seen(), err))
			}
			k.challenges.put(asked, *challenge, challengeLife)
			return *challenge, nil
		})
	return found, true, err
}

func (k *keyring) token(ctx context.Context, at mirror.Pull, way http.RoundTripper, challenge transport.Challenge,
	credential mirror.Credential) (string, bool, error) {
	if known, ok := k.tokens.get(at); ok {
		return known, false, nil
	}
	found, err := once(ctx, k, "token "+at.Host+" "+at.Repository, func(ctx context.Context) (string, error) {
		registry, err := k.registry(at)
		if err != nil {
			return "", err
		}
		scope := "repository:" + at.Repository + ":pull"
		token, err := transport.Exchange(ctx, registry, authenticator(credential), settled{way}, []string{scope},
			&challenge)
		if err != nil {
			return "", tokenFault(ctx, err)
		}
		text := cmp.Or(token.AccessToken, token.Token)
		life := max(time.Duration(token.ExpiresIn)*time.Second, tokenLife) - tokenMargin
		k.tokens.put(at, text, min(life, time.Hour))
		return text, nil
	})
	return found, true, err
}

// tokenFault says that it was the token server, whose answers are not for a log.
func tokenFault(ctx context.Context, err error) *fault {
	f := faultOf(ctx, err)
	f.detail = "token server: " + f.detail
	return f
}

func (k *keyring) registry(at mirror.Pull) (name.Registry, error) {
	options := []name.Option{name.StrictValidation}
	if k.road.isPlain(at.Address()) {
		options = append(options, name.Insecure)
	}
	registry, err := name.NewRegistry(at.Address(), options...)
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

// once does something for all who want it at the same time. It goes on when the first of them goes
// away, so it has a time limit of its own.
func once[T any](ctx context.Context, k *keyring, what string, do func(context.Context) (T, error)) (T, error) {
	var none T
	results := k.flights.DoChan(what, func() (any, error) {
		ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), k.patience, errSlow)
		defer cancel()
		return do(ctx)
	})
	select {
	case <-ctx.Done():
		return none, ctx.Err()
	case result := <-results:
		if result.Err != nil {
			return none, result.Err
		}
		return result.Val.(T), nil
	}
}

// witness remembers why https failed. Ping tries plain http as well at addresses that it takes for
// private, where it is refused, and that is then the only thing that it talks about.
type witness struct {
	road http.RoundTripper
	mu   sync.Mutex
	err  error
}

func (w *witness) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.road.RoundTrip(request)
	if err != nil && !errors.Is(err, errPlain) {
		w.mu.Lock()
		w.err = err
		w.mu.Unlock()
	}
	return response, err
}

func (w *witness) seen() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// settled lets nothing through but the first request's host: a token server that redirects would be
// handed the credential in the body or the header.
type settled struct{ road http.RoundTripper }

func (s settled) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := s.road.RoundTrip(request)
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
