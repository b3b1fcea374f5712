package main

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// pluginManifest is the file name of Krew's manifest. The plugin's name is windows.
const pluginManifest = "windows.yaml"

// pluginPlatforms lists the platforms of the plugin that a release must contain, as os_arch.
func pluginPlatforms() []string {
	return []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64"}
}

// archive is a platform's entry in Krew's manifest.
type archive struct {
	URI, SHA256 string
	Selector    struct{ MatchLabels map[string]string }
}

// collectPlugin copies Krew's manifest and its archives, and writes the list of their parts. It returns an error if
// the manifest has another version, or if an archive has another digest, because Krew would then refuse to install
// the plugin.
func collectPlugin(to, from, version string) error {
	data, err := os.ReadFile(filepath.Join(from, pluginManifest))
	if err != nil {
		return err
	}
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []archive
		}
	}
	if err = yaml.Unmarshal(data, &manifest); err != nil {
		return fmt.Errorf("reading %s: %w", pluginManifest, err)
	}
	if manifest.Spec.Version != "v"+version {
		return fmt.Errorf("%s is of version %s, not v%s", pluginManifest, manifest.Spec.Version, version)
	}
	parts := map[string]part{}
	for _, a := range manifest.Spec.Platforms {
		platform := a.Selector.MatchLabels["os"] + "_" + a.Selector.MatchLabels["arch"]
		if err = a.copyChecked(to, from); err != nil {
			return err
		}
		binary := "kubectl-windows_" + platform
		if strings.HasPrefix(platform, "windows_") {
			binary += ".exe"
		}
		parts[platform] = part{binary, version, filepath.Join(from, binary)}
	}
	platforms := slices.Sorted(maps.Keys(parts))
	if !slices.Equal(platforms, pluginPlatforms()) {
		return fmt.Errorf("%s has the platforms %v, not %v", pluginManifest, platforms, pluginPlatforms())
	}
	ordered := make([]part, 0, len(platforms))
	for _, platform := range platforms {
		ordered = append(ordered, parts[platform])
	}
	bom, err := list("kubectl-windows", version, ordered)
	if err != nil {
		return err
	}
	if err = os.WriteFile(filepath.Join(to, "plugin.cdx.json"), bom, 0o644); err != nil { //nolint:gosec // published
		return err
	}
	return copyFile(filepath.Join(from, pluginManifest), filepath.Join(to, pluginManifest))
}

// copyChecked copies an archive if it has the digest in the manifest.
func (a archive) copyChecked(to, from string) error {
	name := path.Base(a.URI)
	digest, err := digestOf(filepath.Join(from, name))
	if err != nil {
		return err
	}
	if digest != a.SHA256 {
		return fmt.Errorf("%s has the digest %s, and %s says %s", name, digest, pluginManifest, a.SHA256)
	}
	return copyFile(filepath.Join(from, name), filepath.Join(to, name))
}
