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

// pluginManifest is the name of Krew's manifest: the plugin's, windows.
const pluginManifest = "windows.yaml"

// pluginPlatforms are those that a release must have the plugin for, as os_arch.
func pluginPlatforms() []string {
	return []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64", "windows_amd64", "windows_arm64"}
}

// archive is what Krew's manifest says of a platform.
type archive struct {
	URI, SHA256 string
	Selector    struct{ MatchLabels map[string]string }
}

// collectPlugin copies Krew's manifest and the archives that it names, and writes the list of their
// parts. A manifest of another version or of other archives is refused: Krew would refuse it at
// every user's.
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

// copyChecked copies an archive, if it has the digest that the manifest gives.
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
