package mirror

import (
	"cmp"
	_ "crypto/sha512" // digests may be of its kinds
	"fmt"
	"strings"

	"github.com/distribution/reference"

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

// CheckName says what is wrong with the name of a registry, in lower case, and of a repository
// there.
func CheckName(host, repository string) error {
	return cmp.Or(checkHost(host), checkRepository(repository))
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
