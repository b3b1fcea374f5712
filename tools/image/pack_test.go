package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// packBundle creates the image of a small bundle, and returns the layout and the output.
func packBundle(t *testing.T) (layout, printed string) {
	t.Helper()
	directory := t.TempDir()
	for path, text := range map[string]string{
		"manifests/csv.yaml":        "kind: ClusterServiceVersion\n",
		"metadata/annotations.yaml": "annotations:\n  operators.operatorframework.io.bundle.package.v1: windows\n",
	} {
		path = filepath.Join(directory, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	layout = filepath.Join(t.TempDir(), "image")
	out := &bytes.Buffer{}
	if err := pack(out, packOptions{name: "bundle", directory: directory, out: layout, version: "0.1.0",
		repository: "registry.example/wmco"}); err != nil {
		t.Fatal(err)
	}
	return layout, strings.TrimSpace(out.String())
}

func TestA66_ABundleBecomesTheSameImageAgain(t *testing.T) {
	t.Parallel()
	layout, first := packBundle(t)
	_, second := packBundle(t)
	if first != second || !strings.HasPrefix(first, "registry.example/wmco-bundle@sha256:") {
		t.Errorf("two runs differ: %s, then %s", first, second)
	}
	if named, err := nameByDigest(layout, "bundle", "0.1.0", "registry.example/wmco"); err != nil || named != first {
		t.Errorf("the layout names the image %s: %v", named, err)
	}
	if _, err := nameByDigest(layout, "bundle", "0.2.0", "registry.example/wmco"); err == nil ||
		!strings.Contains(err.Error(), "of version 0.1.0, not 0.2.0") {
		t.Errorf("naming an image of another version: %v", err)
	}
	if named, err := nameByDigest(layout, "operator", "0.1.0", "registry.example/wmco"); err == nil {
		t.Errorf("naming a missing image returned %s", named)
	}
}

func TestA66_TheBundlesImageIsPulledWithItsLabels(t *testing.T) {
	t.Parallel()
	layout, _ := packBundle(t)
	host, reach := registry(t, nil)
	if err := push(t.Context(), &bytes.Buffer{}, layout, host+"/wmco", "v0.1.0", reach); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(host + "/wmco-bundle:v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(tag, reach)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.Labels["operators.operatorframework.io.bundle.package.v1"] != "windows" || config.OS != "linux" {
		t.Errorf("%+v", config)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Errorf("the image has %d layers: %v", len(layers), err)
	}
}

func TestAnImageOfAnUnknownKindIsRefused(t *testing.T) {
	t.Parallel()
	err := pack(&bytes.Buffer{}, packOptions{name: "chart", directory: t.TempDir(), out: t.TempDir(), repository: "a/b"})
	if err == nil || !strings.Contains(err.Error(), "chart") {
		t.Errorf("%v", err)
	}
}
