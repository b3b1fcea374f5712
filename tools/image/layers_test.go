package main

import (
	"archive/tar"
	"testing"

	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

// Each blob of the payload must be its own layer, so that images of two releases share their common blobs.
func TestAPayloadsLayersAreItsManifestAndThenItsBlobsInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	manifest, err := assembly.WriteStandins(dir, "v1.37.0")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"payload/" + payload.ManifestName}
	for _, b := range manifest.Blobs() {
		want = append(want, "payload/sha256/"+b.Digest)
	}
	_, layers, err := payloadLayers(dir)
	if err != nil || len(layers) != len(want) {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	for i, l := range layers {
		plain, err := l.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		files := tar.NewReader(plain)
		header, err := files.Next()
		for err == nil && header.Typeflag == tar.TypeDir {
			header, err = files.Next()
		}
		if err != nil || header.Name != want[i] {
			t.Errorf("layer %d has %v instead of %s, %v", i, header, want[i], err)
		}
	}
}
