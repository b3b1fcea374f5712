package resolver

import (
	_ "crypto/sha512" // so that SHA-512 digests can be checked
	"errors"
	"net/url"
	"regexp"
	"strings"

	"github.com/distribution/reference"
	godigest "github.com/opencontainers/go-digest"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// endpoint is a group of requests of the distribution API.
type endpoint string

const (
	ping      endpoint = "ping"
	manifests endpoint = "manifests"
	blobs     endpoint = "blobs"
)

type target struct {
	endpoint endpoint
	image    mirror.Location // the repository in the image name
	tag      string          // empty if requested by digest
	digest   godigest.Digest // empty if requested by tag
}

func (t target) name() string {
	if t.tag != "" {
		return t.image.String() + ":" + t.tag
	}
	return t.image.String() + "@" + t.digest.String()
}

// path returns the path of the target at a source. repository is the repository's name at the source.
func (t target) path(repository string) string {
	reference := t.tag
	if reference == "" {
		reference = t.digest.String()
	}
	return "/v2/" + repository + "/" + string(t.endpoint) + "/" + reference
}

// Errors of invalid requests. The client receives these texts, so the texts contain nothing of the client's request.
var (
	errUnknownPath = errors.New("only manifests and blobs are served here")
	errNoNamespace = errors.New("the registry is missing: exactly one ns is needed")
	errName        = errors.New("ns is not a registry, or the repository's name is not legal")
	errReference   = errors.New("neither a legal tag nor a digest")
)

// parseTarget parses a request's address. It refuses escaped paths, because no valid request needs them.
func parseTarget(u *url.URL) (target, error) {
	if u.RawPath != "" {
		return target{}, errUnknownPath
	}
	rest, ok := strings.CutPrefix(u.Path, "/v2/")
	if !ok {
		return target{}, errUnknownPath
	}
	if rest == "" {
		return target{endpoint: ping}, nil
	}
	t, err := parsePath(rest)
	if err != nil {
		return target{}, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(query["ns"]) != 1 {
		return target{}, errNoNamespace
	}
	if t.image, err = mirror.ParseRepository(query["ns"][0], t.image.Path); err != nil {
		return target{}, errName
	}
	return t, nil
}

// pathForm is <repository>/<manifests|blobs>/<reference>. A repository may itself be called "blobs".
var pathForm = regexp.MustCompile(`^(.+)/(manifests|blobs)/([^/]+)$`)

// parsePath parses a path below /v2/. It doesn't set the host of the image.
func parsePath(path string) (target, error) {
	parts := pathForm.FindStringSubmatch(path)
	if parts == nil {
		return target{}, errUnknownPath
	}
	t := target{image: mirror.Location{Path: parts[1]}, endpoint: endpoint(parts[2]), tag: parts[3]}
	if d, err := godigest.Parse(t.tag); err == nil {
		t.digest, t.tag = d, ""
		return t, nil
	}
	if t.endpoint == blobs || reference.TagRegexp.FindString(t.tag) != t.tag {
		return target{}, errReference
	}
	return t, nil
}
