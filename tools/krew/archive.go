package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// platform is the entry of one archive in Krew's manifest.
type platform struct {
	Selector selector `json:"selector"`
	URI      string   `json:"uri"`
	SHA256   string   `json:"sha256"`
	Bin      string   `json:"bin"`
}

type selector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// member is one file of an archive.
type member struct {
	name    string
	mode    os.FileMode
	content []byte
}

// pack writes the archive of one binary to the binary's directory: zip for Windows, which opens zip files without
// other tools, and tar.gz for other systems.
func pack(binary, url string, licence []byte) (platform, error) {
	content, err := os.ReadFile(binary) //nolint:gosec // the user of this tool names it
	if err != nil {
		return platform{}, err
	}
	name, isWindows := strings.CutSuffix(filepath.Base(binary), ".exe")
	parts := strings.Split(name, "_")
	p := platform{Bin: parts[0], Selector: selector{map[string]string{"os": parts[1], "arch": parts[2]}}}
	name, write := name+".tar.gz", tarball
	if isWindows {
		p.Bin, name, write = p.Bin+".exe", strings.TrimSuffix(name, ".tar.gz")+".zip", zipped
	}
	var archive bytes.Buffer
	if err = write(&archive, []member{{p.Bin, 0o755, content}, {"LICENSE", 0o644, licence}}); err != nil {
		return p, err
	}
	sum := sha256.Sum256(archive.Bytes())
	p.SHA256, p.URI = hex.EncodeToString(sum[:]), strings.TrimSuffix(url, "/")+"/"+name
	file := filepath.Join(filepath.Dir(binary), name)
	return p, os.WriteFile(file, archive.Bytes(), 0o644) //nolint:gosec // to be published
}

func tarball(to io.Writer, members []member) error {
	compressed := gzip.NewWriter(to)
	writer := tar.NewWriter(compressed)
	for _, m := range members {
		header := &tar.Header{Name: m.name, Mode: int64(m.mode), Size: int64(len(m.content)), Format: tar.FormatUSTAR}
		if err := writer.WriteHeader(header); err != nil {
			return err
		}
		if _, err := writer.Write(m.content); err != nil {
			return err
		}
	}
	return errors.Join(writer.Close(), compressed.Close())
}

func zipped(to io.Writer, members []member) error {
	writer := zip.NewWriter(to)
	for _, m := range members {
		// This is the earliest time that zip supports. Some programs complain about a zero time.
		epoch := time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
		header := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: epoch}
		header.SetMode(m.mode)
		file, err := writer.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err = file.Write(m.content); err != nil {
			return err
		}
	}
	return writer.Close()
}

// describe writes Krew's manifest.
func describe(file, version string, platforms []platform) error {
	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin",
		"metadata": map[string]any{"name": "windows"},
		"spec": map[string]any{
			"version": "v" + version, "homepage": homepage, "platforms": platforms,
			"shortDescription": "Inspect Windows nodes and their hosts, and find out what is wrong",
			"description": "Shows the hosts of the Windows Machine Config Operator, why something waits or " +
				"fails,\nand what to do; finds what in manifests won't run on Windows; adds and removes " +
				"hosts;\ncollects data for support.\n",
			"caveats": "For completion of names, link kubectl_complete-windows to the plugin.\n",
		}})
	if err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	return os.WriteFile(file, manifest, 0o644) //nolint:gosec // to be published
}
