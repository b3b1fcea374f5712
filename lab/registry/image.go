package registry

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const manifestType = types.OCIManifestSchema1

// Image is the content of an image: a manifest, its configuration and one layer.
type Image struct{ Manifest, Configuration, Layer []byte }

// NewImage creates a unique image. Its layer is larger than a MiB, so that no proxy buffers all of it before sending.
// The layer is not an archive, because these tests don't unpack it.
func NewImage(t *testing.T) Image {
	t.Helper()
	i := Image{Layer: bytes.Repeat([]byte(rand.Text()), 60_000)}
	layer := describe(types.OCIUncompressedLayer, i.Layer)
	i.Configuration = encode(t, v1.ConfigFile{OS: "windows", Architecture: "amd64",
		RootFS: v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{layer.Digest}}})
	i.Manifest = encode(t, v1.Manifest{
		SchemaVersion: 2, MediaType: manifestType, Config: describe(types.OCIConfigJSON, i.Configuration),
		Layers: []v1.Descriptor{layer},
	})
	return i
}

// Digest returns the digest to pull the image by.
func (i Image) Digest() string { return Digest(i.Manifest) }

// Digest returns the digest of a content in the form of registries.
func Digest(content []byte) string { return hash(content).String() }

func hash(content []byte) v1.Hash {
	return v1.Hash{Algorithm: "sha256", Hex: fmt.Sprintf("%x", sha256.Sum256(content))}
}

func describe(mediaType types.MediaType, content []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: mediaType, Size: int64(len(content)), Digest: hash(content)}
}

func encode(t *testing.T, document any) []byte {
	t.Helper()
	content, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
