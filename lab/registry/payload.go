package registry

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/windows-nodes/wmco/internal/payload"
)

// Payload makes an image of a payload directory, as tools/image does.
func Payload(tb testing.TB, dir string) v1.Image {
	tb.Helper()
	opened, err := payload.OpenDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	files := []string{payload.ManifestName}
	for _, b := range opened.Manifest().Blobs() {
		files = append(files, "sha256/"+b.Digest)
	}
	layers := make([]v1.Layer, len(files))
	for i, file := range files {
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(file)))
		if err != nil {
			tb.Fatal(err)
		}
		layers[i] = PayloadLayer(tb, file, content)
	}
	return OfLayers(tb, layers...)
}

// PayloadLayer is one file in a layer, below the directories that tools/image writes, too.
func PayloadLayer(tb testing.TB, file string, content []byte) v1.Layer {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := errors.Join(
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "payload/", Mode: 0o755}),
		w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "payload/" + file, Size: int64(len(content)),
			Mode: 0o444}))
	if err == nil {
		_, err = w.Write(content)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		tb.Fatal(err)
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	l, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// OfLayers is an image of these layers.
func OfLayers(tb testing.TB, layers ...v1.Layer) v1.Image {
	tb.Helper()
	i, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), layers...)
	if err != nil {
		tb.Fatal(err)
	}
	return i
}

// PushImage puts an image into a repository, and gives its name with its digest.
func (r *Registry) PushImage(t *testing.T, i v1.Image, repository string) string {
	t.Helper()
	digest, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	full := r.Host + "/" + repository + "@" + digest.String()
	ref, err := name.NewDigest(full)
	if err == nil {
		err = remote.Write(ref, i, remote.WithContext(t.Context()), remote.WithTransport(r.server.Client().Transport))
	}
	if err != nil {
		t.Fatal(err)
	}
	return full
}
