package mirror

import (
	"errors"
	"fmt"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Reference is what is pulled, as far as it matters for where from.
type Reference struct {
	// Host is the registry as image names call it, with the port if there is one: docker.io, not
	// registry-1.docker.io.
	Host string
	// Repository is the name within the registry. On Docker Hub one without a slash is of library/.
	Repository string
	// Kind is digest if the image is named by a digest, even if it has a tag too.
	Kind contract.PullKind
}

// ParseReference reads an image name as users write it: what has no registry is of Docker Hub, and
// without tag and digest the tag is latest.
func ParseReference(name string) (Reference, error) {
	reference := Reference{Kind: contract.PullByTag}
	name, digest, hasDigest := strings.Cut(name, "@")
	if hasDigest {
		if !isDigest(digest) {
			return Reference{}, errors.New("reading an image name: its digest is malformed")
		}
		reference.Kind = contract.PullByDigest
	}
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		if !isTag(name[colon+1:]) {
			return Reference{}, errors.New("reading an image name: its tag is malformed")
		}
		name = name[:colon]
	}
	host, repository, hasHost := strings.Cut(name, "/")
	switch {
	case !hasHost || !strings.ContainsAny(host, ".:") && host != "localhost" && strings.ToLower(host) == host:
		host, repository = dockerHub, name
	case strings.EqualFold(host, "index.docker.io"):
		host = dockerHub
	}
	reference.Host, reference.Repository = host, repository
	reference = reference.normal()
	if _, err := parseLocation(reference.Host + "/" + reference.Repository); err != nil {
		return Reference{}, fmt.Errorf("reading an image name: %w", err)
	}
	return reference, nil
}

// normal is the reference with its host in lower case, and the repository that Docker Hub serves
// under a short name.
func (r Reference) normal() Reference {
	r.Host = strings.ToLower(r.Host)
	if r.Host == dockerHub && !strings.Contains(r.Repository, "/") && r.Repository != "" {
		r.Repository = dockerHubLibrary + r.Repository
	}
	return r
}

func (r Reference) location() location { return location{host: r.Host, path: r.Repository} }

// isTag follows the distribution specification: up to 128 letters, digits, underscores, dots and
// hyphens, the last two not in front.
func isTag(text string) bool {
	return text != "" && len(text) <= 128 && text[0] != '.' && text[0] != '-' &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return !isLetterOrDigit(r) && (r < 'A' || 'Z' < r) && r != '_' && r != '.' && r != '-'
		})
}

// isDigest says whether text is algorithm:hex, with the lengths of the registered algorithms.
func isDigest(text string) bool {
	algorithm, hex, _ := strings.Cut(text, ":")
	length := map[string]int{"sha256": 64, "sha384": 96, "sha512": 128}[algorithm]
	return length > 0 && len(hex) == length && strings.Trim(hex, "0123456789abcdef") == ""
}
