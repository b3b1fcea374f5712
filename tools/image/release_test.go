package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// parts returns the options of a release with small parts.
func parts(t *testing.T, chart []byte) releaseOptions {
	t.Helper()
	s, o := newSource(t), releaseOptions{version: "0.1.0", out: filepath.Join(t.TempDir(), "release")}
	o.images, o.payload = filepath.Join(t.TempDir(), "image"), s.payload
	s.build(t, o.images, nil)
	o.bundle, _ = packBundle(t)
	o.catalog, _ = packBundle(t)
	o.plugin = newPlugin(t)
	o.sonobuoy, o.repository = "../../cmd/wmco-e2e/wmco-e2e.yaml", "registry.example/wmco"
	o.notes, o.source = filepath.Join(t.TempDir(), "release-notes.md"), "https://github.com/someone/wmco"
	const page = "# Release notes\n\n## 0.2.0\n\nAnother.\n\n## 0.1.0\n\nThe first: [tests](testing.md#a).\n\nNext: [Limits](limits.md)\n"
	if err := os.WriteFile(o.notes, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	o.chart, o.changes = filepath.Join(t.TempDir(), "wmco-0.1.0.tgz"), filepath.Join(t.TempDir(), "changes.txt")
	for path, text := range map[string][]byte{o.chart: chart, o.changes: []byte(strings.Repeat("One thing\n", 3) +
		"Another thing\n" + strings.Repeat("An old thing\n", 500))} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

// released creates such a release, and returns its files by name.
func released(t *testing.T, chart []byte) map[string]string {
	t.Helper()
	o := parts(t, chart)
	if err := makeRelease(&bytes.Buffer{}, o); err != nil {
		t.Fatal(err)
	}
	files, err := tree(o.out)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(o.out, f.path))
		if err != nil {
			t.Fatal(err)
		}
		all[f.path] = string(data)
	}
	return all
}

func TestA64_AReleaseIsWholeAndTheSameAgain(t *testing.T) {
	t.Parallel()
	first, second := released(t, []byte("chart")), released(t, []byte("chart"))
	if !maps.Equal(first, second) {
		t.Error("two runs differ")
	}
	want := []string{"NOTES.md", "bundle.cdx.json", "e2e.cdx.json", "image-bundle.oci.tar", "image-operator-payload-e2e.oci.tar", "images.txt",
		"kubectl-windows_darwin_amd64.tar.gz", "kubectl-windows_darwin_arm64.tar.gz",
		"kubectl-windows_linux_amd64.tar.gz", "kubectl-windows_linux_arm64.tar.gz",
		"kubectl-windows_windows_amd64.zip", "kubectl-windows_windows_arm64.zip",
		"operator.cdx.json", "payload.cdx.json", "plugin.cdx.json", "sha256sums.txt", "windows.yaml",
		"wmco-0.1.0.tgz", "wmco-e2e.yaml"}
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, want) {
		t.Errorf("the release has %v", got)
	}
	for _, text := range []string{"| kubelet.exe | v1.2.3 | supplied |", "- Another thing\n", "\nThe 4 changes before", "| operator | `sha256:",
		"The first: [tests](https://github.com/someone/wmco/blob/v0.1.0/docs/testing.md#a).\n\nInstall",
		"helm install wmco oci://registry.example/charts/wmco --version 0.1.0\n"} {
		if !strings.Contains(first["NOTES.md"], text) {
			t.Errorf("the notes lack %q:\n%s", text, first["NOTES.md"])
		}
	}
	for _, repository := range []string{"wmco", "wmco-payload", "wmco-e2e", "wmco-bundle"} {
		if !regexp.MustCompile(`(?m)^[0-9a-f]{64}  registry\.example/` + repository + "$").MatchString(first["images.txt"]) {
			t.Errorf("the list of images lacks %s:\n%s", repository, first["images.txt"])
		}
	}
	if text := first["wmco-e2e.yaml"]; !strings.Contains(text, "\n  image: registry.example/wmco-e2e@sha256:") ||
		strings.Contains(text, "wmco-e2e:") {
		t.Errorf("the plugin for Sonobuoy has the content %s", text)
	}
	if lines := strings.Count(first["sha256sums.txt"], "\n"); lines != len(want)-1 {
		t.Errorf("there are %d checksums for %d files", lines, len(want)-1)
	}
	if other := released(t, []byte("another")); other["sha256sums.txt"] == first["sha256sums.txt"] {
		t.Error("with another chart, the checksums are the same")
	}
}

func TestA64_WithoutItsImagesThereIsNoRelease(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "release")
	err := makeRelease(&bytes.Buffer{}, releaseOptions{images: t.TempDir(), out: out})
	if err == nil || !strings.Contains(err.Error(), "make image") {
		t.Errorf("%v", err)
	}
	if _, err = layout.FromPath(out); err == nil {
		t.Error("the failed command created a directory")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(out), ".release-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("temporary files were not removed: %v, %v", left, err)
	}
}
