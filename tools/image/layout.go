package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/sigstore/sigstore/pkg/signature"
)

// Annotations in the index of an OCI layout: the name of an image, and the digest of a referrer's image.
const (
	nameAnnotation    = "org.opencontainers.image.ref.name"
	subjectAnnotation = "io.windows-nodes.subject"
)

// made is one image with its attachments.
type made struct {
	// name is "operator", "payload" or "e2e".
	name      string
	image     mutate.Appendable
	referrers []v1.Image
}

// finish attaches the list of parts, and the signature if there is a key.
func finish(as string, image mutate.Appendable, version string, parts []part, repository name.Repository,
	key signature.Signer) (made, error) {
	subject, err := partial.Descriptor(image)
	if err != nil {
		return made{}, err
	}
	text, err := list(as, version, parts)
	if err != nil {
		return made{}, err
	}
	bom, err := attach(*subject, bomType, text, bomType, nil)
	if err != nil {
		return made{}, fmt.Errorf("attaching the list of parts: %w", err)
	}
	all := made{name: as, image: image, referrers: []v1.Image{bom}}
	if key != nil {
		signed, err := sign(key, repository, *subject)
		if err != nil {
			return made{}, err
		}
		all.referrers = append(all.referrers, signed)
	}
	return all, nil
}

// write replaces the layout in a directory. The old layout stays until the new one is complete.
func write(directory string, all ...made) error {
	scratch, err := os.MkdirTemp(parentOf(directory), ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	path, err := layout.Write(scratch, empty.Index)
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := m.into(path); err != nil {
			return fmt.Errorf("writing the image of the %s: %w", m.name, err)
		}
	}
	if err := os.RemoveAll(directory); err != nil {
		return err
	}
	// MkdirTemp creates a directory for its owner only, but every user may read images.
	return errors.Join(os.Chmod(scratch, 0o755), os.Rename(scratch, directory))
}

func parentOf(directory string) string {
	if i := strings.LastIndex(strings.TrimRight(directory, "/"), "/"); i > 0 {
		return directory[:i]
	}
	return "."
}

func (m made) into(path layout.Path) error {
	subject, err := partial.Descriptor(m.image)
	if err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{nameAnnotation: m.name})
	switch image := m.image.(type) {
	case v1.ImageIndex:
		err = path.AppendIndex(image, named)
	case v1.Image:
		err = path.AppendImage(image, named)
	}
	for _, referrer := range m.referrers {
		about := layout.WithAnnotations(map[string]string{subjectAnnotation: subject.Digest.String()})
		err = errors.Join(err, path.AppendImage(referrer, about))
	}
	return err
}
