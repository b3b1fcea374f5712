package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestA75_KrewInstallsWhatTheManifestNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"kubectl-windows_linux_amd64", "kubectl-windows_windows_arm64.exe"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("binary "+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var texts [2]string
	for i := range texts { // the second finds the archives of the first
		if err := run(dir, "0.2.0", "https://example.com/v0.2.0/", "../../LICENSE"); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "windows.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Errorf("twice is not the same:\n%s\n%s", texts[0], texts[1])
	}
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []platform
		}
	}
	if err := yaml.Unmarshal([]byte(texts[0]), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Spec.Version != "v0.2.0" || len(manifest.Spec.Platforms) != 2 {
		t.Fatalf("%+v", manifest)
	}
	for _, p := range manifest.Spec.Platforms {
		archive := filepath.Join(dir, filepath.Base(p.URI))
		content, err := os.ReadFile(archive)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != p.SHA256 {
			t.Errorf("%s has another digest", p.URI)
		}
		list, err := exec.CommandContext(t.Context(), "tar", "-tvzf", archive).Output()
		if err != nil || !strings.Contains(string(list), "-rwxr-xr-x") || !strings.Contains(string(list), p.Bin) ||
			!strings.Contains(string(list), "LICENSE") {
			t.Errorf("%s: %v\n%s", archive, err, list)
		}
	}
	if err := run(t.TempDir(), "0.2.0", "", "../../LICENSE"); err == nil {
		t.Error("a manifest of nothing is made")
	}
}
