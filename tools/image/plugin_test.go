package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// newPlugin creates a directory with the files of `make plugin`, with small archives.
func newPlugin(t *testing.T) string {
	t.Helper()
	directory := t.TempDir()
	platforms := []map[string]any{}
	for _, name := range pluginPlatforms() {
		system, arch, _ := strings.Cut(name, "_")
		binary, packed := "kubectl-windows_"+name, "kubectl-windows_"+name+".tar.gz"
		if system == "windows" {
			binary, packed = binary+".exe", "kubectl-windows_"+name+".zip"
		}
		for _, file := range []string{binary, packed} {
			if err := os.WriteFile(filepath.Join(directory, file), []byte("this is "+file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		digest, err := digestOf(filepath.Join(directory, packed))
		if err != nil {
			t.Fatal(err)
		}
		platforms = append(platforms, map[string]any{"uri": "https://example.com/v0.1.0/" + packed, "sha256": digest,
			"bin": "kubectl-windows", "selector": map[string]any{"matchLabels": map[string]any{"os": system, "arch": arch}}})
	}
	writeKrew(t, directory, map[string]any{"version": "v0.1.0", "platforms": platforms})
	return directory
}

func writeKrew(t *testing.T, directory string, spec map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{"kind": "Plugin", "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(filepath.Join(directory, pluginManifest), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestA64_APluginThatKrewWouldRefuseIsNotReleased(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(t *testing.T, directory string)
		want  string
	}{
		"nothing built": {func(t *testing.T, directory string) {
			t.Helper()
			if err := os.Remove(filepath.Join(directory, pluginManifest)); err != nil {
				t.Fatal(err)
			}
		}, "make plugin"},
		"another version": {func(t *testing.T, directory string) {
			t.Helper()
			writeKrew(t, directory, map[string]any{"version": "v0.0.9"})
		}, "of version v0.0.9, not v0.1.0"},
		"a platform is missing": {func(t *testing.T, directory string) {
			t.Helper()
			writeKrew(t, directory, map[string]any{"version": "v0.1.0"})
		}, "has the platforms []"},
		"an archive that was changed": {func(t *testing.T, directory string) {
			t.Helper()
			file := filepath.Join(directory, "kubectl-windows_linux_arm64.tar.gz")
			if err := os.WriteFile(file, []byte("changed"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "kubectl-windows_linux_arm64.tar.gz has the digest"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := parts(t, []byte("chart"))
			c.spoil(t, o.plugin)
			err := makeRelease(&bytes.Buffer{}, o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
			if _, err = os.Stat(o.out); !os.IsNotExist(err) {
				t.Error("a release was created although the plugin is wrong")
			}
		})
	}
}
