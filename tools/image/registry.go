package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/sigstore/sigstore/pkg/signature"
)

// suffixes of the repositories, by the image's name in the layout.
var suffixes = map[string]string{ //nolint:gochecknoglobals // a table
	"operator": "", "payload": "-payload", "bundle": "-bundle", "catalog": "-catalog", "e2e": "-e2e",
}

// open reads the index of a layout.
func open(directory string) (*v1.IndexManifest, v1.ImageIndex, error) {
	path, err := layout.FromPath(directory)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the layout, which `make image` makes: %w", err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		return nil, nil, err
	}
	manifest, err := all.IndexManifest()
	return manifest, all, err
}

// push copies a layout to a registry: the operator's image to repository:tag, the others to repository-<name>:tag,
// and attachments to the repository of their image. It skips content that the registry already has, so after an
// interruption you can run it again.
func push(ctx context.Context, out io.Writer, directory, repository, tag string, options ...remote.Option) error {
	manifest, all, err := open(directory)
	if err != nil {
		return err
	}
	options = append(options, remote.WithContext(ctx))
	for _, image := range manifest.Manifests {
		suffix, known := suffixes[image.Annotations[nameAnnotation]]
		if !known {
			continue
		}
		to, err := name.NewTag(repository + suffix + ":" + tag)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(out, "pushing %s\n", to)
		if err := pushOne(all, image, to, options); err != nil {
			return withFix(fmt.Errorf("pushing %s: %w", to, err), to.Context())
		}
		for _, referrer := range manifest.Manifests {
			if referrer.Annotations[subjectAnnotation] != image.Digest.String() {
				continue
			}
			if err := pushReferrer(all, referrer, image, to, options); err != nil {
				return withFix(fmt.Errorf("pushing what is attached to %s: %w", to, err), to.Context())
			}
		}
		_, _ = fmt.Fprintf(out, "pushed  %s@%s\n", to.Context(), image.Digest)
	}
	return nil
}

// withFix adds a fix to an error if the registry refuses access. It returns other errors unchanged.
func withFix(err error, repository name.Repository) error {
	refused := (*transport.Error)(nil)
	if !errors.As(err, &refused) {
		return err
	}
	switch refused.StatusCode {
	case http.StatusUnauthorized:
		return fmt.Errorf("%w: log in to %s, by `docker login` or `podman login`, whose file is read "+
			"(REGISTRY_AUTH_FILE names another)", err, repository.RegistryStr())
	case http.StatusForbidden:
		return fmt.Errorf("%w: the account that is logged in to %s may not push to %s; its owner grants that, or "+
			"make the repository first", err, repository.RegistryStr(), repository.RepositoryStr())
	}
	return err
}

func pushOne(from v1.ImageIndex, d v1.Descriptor, to name.Reference, options []remote.Option) error {
	if d.MediaType.IsIndex() {
		index, err := from.ImageIndex(d.Digest)
		if err != nil {
			return err
		}
		return remote.WriteIndex(to, index, options...)
	}
	image, err := from.Image(d.Digest)
	if err != nil {
		return err
	}
	return remote.Write(to, image, options...)
}

// pushReferrer pushes a referrer by digest. It also pushes a signature by tag: in registries that don't list
// referrers, cosign looks for this tag.
func pushReferrer(from v1.ImageIndex, referrer, image v1.Descriptor, to name.Tag, options []remote.Option) error {
	if err := pushOne(from, referrer, to.Context().Digest(referrer.Digest.String()), options); err != nil {
		return err
	}
	attached, err := from.Image(referrer.Digest)
	if err != nil {
		return err
	}
	manifest, err := attached.Manifest()
	if err != nil || manifest.Config.MediaType != signatureType {
		return err
	}
	tag := strings.Replace(image.Digest.String(), ":", "-", 1) + ".sig"
	return remote.Write(to.Context().Tag(tag), attached, options...)
}

// verify checks that an image in a registry has a signature by the key.
func verify(ctx context.Context, image name.Reference, key signature.Verifier, options ...remote.Option) error {
	options = append(options, remote.WithContext(ctx))
	described, err := remote.Head(image, options...)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", image, err)
	}
	attached, err := referrers(image.Context().Digest(described.Digest.String()), options...)
	if err != nil {
		return err
	}
	for _, referrer := range attached {
		if err := signedBy(key, referrer, described.Digest); !errors.Is(err, errUnsigned) {
			return err
		}
	}
	return fmt.Errorf("verifying %s: %w", image, errUnsigned)
}

// referrers fetches the attachments of an image.
func referrers(image name.Digest, options ...remote.Option) ([]v1.Image, error) {
	list, err := remote.Referrers(image, options...)
	if err != nil {
		return nil, fmt.Errorf("listing what is attached to %s: %w", image, err)
	}
	manifest, err := list.IndexManifest()
	if err != nil {
		return nil, err
	}
	var all []v1.Image
	for _, d := range manifest.Manifests {
		one, err := remote.Image(image.Context().Digest(d.Digest.String()), options...)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", d.Digest, err)
		}
		all = append(all, one)
	}
	return all, nil
}
