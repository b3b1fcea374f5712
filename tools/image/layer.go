package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// file is one file of an image.
type file struct {
	// path in the image, without a leading slash.
	path string
	mode int64
	size int64
	open func() (io.ReadCloser, error)
}

// fromDisk returns a file of this machine, with its path in the image.
func fromDisk(source, target string, mode int64) (file, error) {
	info, err := os.Stat(source)
	if err != nil {
		return file{}, err
	}
	if !info.Mode().IsRegular() {
		return file{}, fmt.Errorf("%s is not a regular file", source)
	}
	return file{path: target, mode: mode, size: info.Size(),
		open: func() (io.ReadCloser, error) { return os.Open(source) }}, nil
}

// layer packs files so that the same content always gives the same bytes. The files are sorted and owned by root.
// Their time is 1970-01-01, so that it doesn't depend on the machine that builds the image.
func layer(files ...file) (v1.Layer, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return bytes.Compare([]byte(a.path), []byte(b.path)) })
	open := func() (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		go func() { _ = writer.CloseWithError(writeTar(writer, files)) }()
		return reader, nil
	}
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// writeTar writes files as a tar. Each directory comes before its content.
func writeTar(to io.Writer, files []file) error {
	out := tar.NewWriter(to)
	made := map[string]bool{".": true}
	for _, f := range files {
		for _, folder := range parents(f.path) {
			if made[folder] {
				continue
			}
			made[folder] = true
			header := &tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, Format: tar.FormatUSTAR}
			if err := out.WriteHeader(header); err != nil {
				return fmt.Errorf("writing %s: %w", folder, err)
			}
		}
		if err := writeFile(out, f); err != nil {
			return fmt.Errorf("writing %s: %w", f.path, err)
		}
	}
	return out.Close()
}

func writeFile(out *tar.Writer, f file) (err error) {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: f.size, Format: tar.FormatUSTAR}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	content, err := f.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, content.Close()) }()
	_, err = io.Copy(out, content)
	return err
}

// parents lists the folders above a path, outermost first.
func parents(name string) []string {
	var folders []string
	for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
		folders = append(folders, folder)
	}
	slices.Reverse(folders)
	return folders
}
