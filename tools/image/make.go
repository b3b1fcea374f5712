package main

import (
	"fmt"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/windows-nodes/wmco/internal/payload"
)

const (
	// programs is the directory of programs in images. Users' scripts rely on it.
	programs = "usr/local/bin/"
	operator = "windows-machine-config-operator"
	e2e      = "wmco-e2e"
	copier   = "copy-payload"
	// user is the user of the image's process. It is a number, so that runAsNonRoot can be checked without the
	// image's files.
	user = "65532:65532"
)

// labels are the labels of every image. Their names come from the OCI image specification.
type labels struct{ title, description, version, revision string }

func (l labels) all() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       l.title,
		"org.opencontainers.image.description": l.description,
		"org.opencontainers.image.version":     l.version,
		"org.opencontainers.image.revision":    l.revision,
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"io.k8s.display-name":                  l.title,
		"io.k8s.description":                   l.description,
		"io.openshift.tags":                    "windows",
	}
}

// payloadLayers packs a payload directory: payload.json and each blob have their own layer. So if two releases
// share a blob, it is stored and copied once.
func payloadLayers(directory string) (payload.Manifest, []v1.Layer, error) {
	opened, err := payload.OpenDir(directory)
	if err != nil {
		return payload.Manifest{}, nil, fmt.Errorf("reading the payload, which `make payload` makes: %w", err)
	}
	names := []string{payload.ManifestName}
	for _, blob := range opened.Manifest().Blobs() {
		names = append(names, "sha256/"+blob.Digest)
	}
	layers := make([]v1.Layer, 0, len(names))
	for _, name := range names {
		f, err := fromDisk(filepath.Join(directory, name), "payload/"+name, 0o444)
		if err != nil {
			return payload.Manifest{}, nil, err
		}
		packed, err := layer(f)
		if err != nil {
			return payload.Manifest{}, nil, fmt.Errorf("packing %s: %w", name, err)
		}
		layers = append(layers, packed)
	}
	return opened.Manifest(), layers, nil
}

// assemble creates an image of layers.
func assemble(platform v1.Platform, config v1.Config, layers []v1.Layer) (v1.Image, error) {
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layers...)
	if err != nil {
		return nil, err
	}
	described, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	described = described.DeepCopy()
	described.OS, described.Architecture = platform.OS, platform.Architecture
	described.Config = config
	described.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	return mutate.ConfigFile(image, described)
}

// programImage creates an image of a static program for one platform. beside holds the image's other layers, such
// as the payload in the operator's image.
func programImage(platform v1.Platform, program, binary string, l labels, beside []v1.Layer) (v1.Image, error) {
	program = programs + program
	f, err := fromDisk(binary, program, 0o555)
	if err != nil {
		return nil, err
	}
	top, err := layer(f)
	if err != nil {
		return nil, err
	}
	config := v1.Config{User: user, Entrypoint: []string{"/" + program}, Labels: l.all(),
		Env: []string{"PATH=/usr/local/bin"}}
	return assemble(platform, config, append(append([]v1.Layer{}, beside...), top))
}

// index joins the images of several platforms.
func index(images map[string]v1.Image, order []v1.Platform) v1.ImageIndex {
	joined := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range order {
		joined = mutate.AppendManifests(joined, mutate.IndexAddendum{
			Add: images[platform.String()], Descriptor: v1.Descriptor{Platform: &platform}})
	}
	return joined
}
