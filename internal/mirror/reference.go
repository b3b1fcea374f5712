package mirror

import (
	"cmp"
	_ "crypto/sha512" // digests may be of its kinds
	"fmt"
	"strings"

	"github.com/distribution/reference"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Reference holds the parts of an image name that decide where the image is pulled from.
type Reference struct {
	// Host is the registry in the form of image names, with the port if there is one: docker.io, not
	// registry-1.docker.io.
	Host string
	// Repository is the name within the registry. On Docker Hub, a name without a slash belongs to library/.
	Repository string
	// Kind is digest if the image name contains a digest, even if it also contains a tag.
	Kind contract.PullKind
}

// ParseReference parses an image name as users write it. A name without a registry belongs to Docker Hub. A name
// without tag and digest has the tag latest.
func ParseReference(name string) (Reference, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return Reference{}, fmt.Errorf("reading an image name: %w", err)
	}
	image := Reference{Host: reference.Domain(named), Repository: reference.Path(named), Kind: contract.PullByTag}
	if _, ok := named.(reference.Digested); ok {
		image.Kind = contract.PullByDigest
	}
	image = image.normal()
	if err = CheckName(image.Host, image.Repository); err != nil {
		return Reference{}, fmt.Errorf("reading an image name: %w", err)
	}
	return image, nil
}

// CheckName returns why a registry, in lower case, or a repository has an invalid name.
func CheckName(host, repository string) error {
	return cmp.Or(checkHost(host), checkRepository(repository))
}

// normal returns the reference with its host in lower case, and with the full repository name if Docker Hub serves it
// under a short one.
func (r Reference) normal() Reference {
	r.Host = strings.ToLower(r.Host)
	if r.Host == dockerHub && !strings.Contains(r.Repository, "/") && r.Repository != "" {
		r.Repository = dockerHubLibrary + r.Repository
	}
	return r
}

func (r Reference) location() location { return location{host: r.Host, path: r.Repository} }
