// Command krew answers how Krew, the package manager for plugins of kubectl, installs ours: it packs
// each binary of kubectl-windows with the licence, and writes the manifest that names the archives by
// their SHA-256. `make plugin` runs it. The same binaries give the same archives.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	dir := flag.String("dir", "out/plugin", "folder with the binaries kubectl-windows_<os>_<arch>, and for the result")
	version := flag.String("version", "0.1.0", "version of the plugin")
	url := flag.String("url", "", "where the archives are going to be downloaded from")
	licence := flag.String("licence", "LICENSE", "file to pack beside each binary")
	flag.Parse()
	if err := run(*dir, *version, *url, *licence); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

// platform is one archive, in Krew's words.
type platform struct {
	Selector map[string]map[string]string `json:"selector"`
	URI      string                       `json:"uri"`
	SHA256   string                       `json:"sha256"`
	Bin      string                       `json:"bin"`
}

func run(dir, version, url, licence string) error {
	text, err := os.ReadFile(licence) //nolint:gosec // who builds names it
	if err != nil {
		return fmt.Errorf("reading the licence: %w", err)
	}
	binaries, err := filepath.Glob(filepath.Join(dir, "kubectl-windows_*_*"))
	if err != nil {
		return fmt.Errorf("looking for binaries: %w", err)
	}
	var platforms []platform
	for _, binary := range binaries {
		if strings.HasSuffix(binary, ".tar.gz") {
			continue
		}
		p, err := pack(binary, url, text)
		if err != nil {
			return fmt.Errorf("packing %s: %w", binary, err)
		}
		platforms = append(platforms, p)
	}
	if len(platforms) == 0 {
		return errors.New("there are no binaries in " + dir)
	}
	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]any{"name": "windows"},
		"spec": map[string]any{
			"version": "v" + version, "homepage": "https://github.com/windows-nodes/wmco", "platforms": platforms,
			"shortDescription": "Look at Windows nodes and their hosts, and find out why",
			"description": "Shows the hosts of the Windows Machine Config Operator, why something waits or fails,\n" +
				"and what to do; finds what of manifests will not run on Windows; adds and removes hosts;\n" +
				"collects what support needs.\n",
			"caveats": "For completion of names, link kubectl_complete-windows to the plugin.\n",
		}})
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "windows.yaml"), manifest, 0o644) //nolint:gosec // to be published
}

// pack writes the archive of one binary beside it.
func pack(binary, url string, licence []byte) (platform, error) {
	content, err := os.ReadFile(binary) //nolint:gosec // who builds names it
	if err != nil {
		return platform{}, err
	}
	name, isWindows := strings.CutSuffix(filepath.Base(binary), ".exe")
	parts := strings.Split(name, "_")
	p := platform{Bin: parts[0], Selector: map[string]map[string]string{
		"matchLabels": {"os": parts[1], "arch": parts[2]}}}
	if isWindows {
		p.Bin += ".exe"
	}
	var archive bytes.Buffer
	compressed := gzip.NewWriter(&archive)
	writer := tar.NewWriter(compressed)
	err = errors.Join(write(writer, p.Bin, 0o755, content), write(writer, "LICENSE", 0o644, licence),
		writer.Close(), compressed.Close())
	if err != nil {
		return p, err
	}
	sum := sha256.Sum256(archive.Bytes())
	p.SHA256, p.URI = hex.EncodeToString(sum[:]), strings.TrimSuffix(url, "/")+"/"+name+".tar.gz"
	file := filepath.Join(filepath.Dir(binary), name+".tar.gz")
	return p, os.WriteFile(file, archive.Bytes(), 0o644) //nolint:gosec // to be published
}

func write(to *tar.Writer, name string, mode int64, content []byte) error {
	if err := to.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := to.Write(content)
	return err
}
