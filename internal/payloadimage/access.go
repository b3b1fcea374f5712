package payloadimage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"

	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/internal/mirror/insecure"
	"github.com/windows-nodes/wmco/internal/response"
)

// maxAnswer bounds every answer of a registry, unless it is a blob: manifests are some kilobytes.
const maxAnswer = 4 << 20

// Access is how registries are reached.
type Access struct {
	// Rules say from where an image is pulled.
	Rules mirror.Rules
	// Secret has the credentials.
	Secret mirror.PullSecret
	// CA are certificates, as PEM, that are trusted in addition to the system's.
	CA []byte
	// Proxy says through which proxy a URL is reached; nil for none.
	Proxy func(*url.URL) (*url.URL, error)
}

// options are for one place to pull from.
func (a Access) options(from mirror.Pull) ([]remote.Option, []name.Option) {
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	roots.AppendCertsFromPEM(a.CA)
	base := remote.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	base.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	base.MaxResponseHeaderBytes = response.MaxHeader
	base.Proxy = nil
	if a.Proxy != nil {
		base.Proxy = func(r *http.Request) (*url.URL, error) { return a.Proxy(r.URL) }
	}
	auth := authn.Anonymous
	if c, ok := a.Secret.For(from.Host, from.Repository); ok {
		auth = authn.FromConfig(authn.AuthConfig{Username: c.Username, Password: c.Password,
			IdentityToken: c.IdentityToken, RegistryToken: c.RegistryToken})
	}
	var named []name.Option
	way := bounded{Transport: base}
	if a.Rules.Insecure(from.Host, from.Repository) {
		named = append(named, name.Insecure)
		way.insecure, way.lax = strings.ToLower(from.Address()), insecure.New(base)
	}
	return []remote.Option{remote.WithTransport(way), remote.WithAuth(auth)}, named
}

// bounded ends answers that are too long, and refuses to go on without TLS.
type bounded struct {
	*http.Transport
	// insecure is the registry that may have any certificate, or no TLS, and lax the way to it: whoever
	// it sends us on to is checked like everybody else.
	insecure string
	lax      *insecure.Transport
}

var errNoTLS = errors.New("the registry has no TLS, and is not among the insecure registries")

// RoundTrip is http.RoundTripper.
func (b bounded) RoundTrip(request *http.Request) (*http.Response, error) {
	var way http.RoundTripper = b.Transport
	switch {
	case b.lax != nil && strings.ToLower(request.URL.Host) == b.insecure:
		way = b.lax
	case request.URL.Scheme != "https":
		return nil, errNoTLS
	}
	answer, err := way.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	first := request
	for first.Response != nil { // blobs are often somewhere else
		first = first.Response.Request
	}
	if !strings.Contains(first.URL.Path, "/blobs/") {
		answer.Body = response.Body(answer.Body, maxAnswer)
	}
	return answer, nil
}

// explain says what an error of a registry means. URLs are left out: their queries may be secret.
func explain(err error) string {
	var answer *transport.Error
	if errors.As(err, &answer) {
		switch answer.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return "it refuses the credentials, or needs some"
		case http.StatusNotFound:
			return "it does not have the image"
		}
		return fmt.Sprintf("it answers %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "it takes too long"
	}
	var request *url.Error
	if errors.As(err, &request) {
		return request.Err.Error()
	}
	return err.Error()
}
