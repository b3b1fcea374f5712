// Package assembly creates payload directories: from parts, from an existing directory, or from stand-ins for the
// parts.
//
// The program that builds a payload, the init container that copies a payload, and the lab use this package. The
// operator and the daemon only read payload directories.
package assembly

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Builder fills a directory with a payload. Before Finish writes the manifest, the directory is not a payload.
type Builder struct {
	dir   string
	files []payload.File
	why   map[string]string
}

// NewBuilder starts a payload in the directory dir. If dir contains an older payload, blobs that the new payload also
// needs remain in dir.
func NewBuilder(dir string) (*Builder, error) {
	if err := os.MkdirAll(payload.BlobPath(dir, ""), 0o755); err != nil {
		return nil, fmt.Errorf("making the payload directory: %w", err)
	}
	return &Builder{dir: dir, why: map[string]string{}}, nil
}

// Add reads the content of a part and stores it. name must be the name of a part in payload.Parts. version and source
// are the fields of payload.File. If the payload has several versions of the part, call Add once for each, with the
// newest version first.
func (b *Builder) Add(name, version, source string, content io.Reader) (payload.File, error) {
	part, known := payload.PartNamed(name)
	if !known {
		return payload.File{}, fmt.Errorf("adding %q: not a part of a payload", name)
	}
	if slices.ContainsFunc(b.files, func(f payload.File) bool {
		return f.Name == name && (!part.Skewed || f.Version == version)
	}) {
		return payload.File{}, fmt.Errorf("adding %s: it is there already", name)
	}
	blob, err := b.store(content)
	if err != nil {
		return payload.File{}, fmt.Errorf("adding %s: %w", name, err)
	}
	f := payload.File{Name: name, Version: version, Source: source, Size: blob.Size, Digest: blob.Digest,
		Path: part.Path}
	b.files = append(b.files, f)
	return f, nil
}

// Lacks records why the payload lacks a part. The manifest contains this reason.
func (b *Builder) Lacks(name, reason string) { b.why[name] = reason }

// Finish writes the manifest, which lists the files in the order of payload.Parts. Then it deletes the blobs that the
// manifest doesn't list.
func (b *Builder) Finish(version string) (payload.Manifest, error) {
	m := payload.Manifest{Version: version, Files: []payload.File{}, Missing: lacking(b.files, b.why)}
	for _, p := range payload.Parts() {
		for _, f := range b.files {
			if f.Name == p.Name {
				m.Files = append(m.Files, f)
			}
		}
	}
	return m, b.finish(m)
}

func (b *Builder) finish(m payload.Manifest) error {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the manifest: %w", err)
	}
	if _, err = payload.ParseManifest(text); err != nil {
		return err
	}
	text = append(text, '\n')
	if err = writeFile(filepath.Join(b.dir, payload.ManifestName), strings.NewReader(string(text))); err != nil {
		return fmt.Errorf("writing the manifest: %w", err)
	}
	if err = b.prune(m); err != nil {
		return fmt.Errorf("removing blobs of an older payload: %w", err)
	}
	return nil
}

// Copy copies a payload directory and verifies the digest of each blob. If a copy was interrupted, call Copy again. It
// writes the manifest last. If the content of a blob doesn't match its digest, the error is a *contract.Problem with
// the reason PayloadCorrupt.
func Copy(from, to string) (payload.Manifest, error) {
	source, err := payload.OpenDir(from)
	if err != nil {
		return payload.Manifest{}, err
	}
	b, err := NewBuilder(to)
	if err != nil {
		return payload.Manifest{}, err
	}
	manifest := source.Manifest()
	for _, f := range manifest.Files {
		content, err := os.Open(payload.BlobPath(from, f.Digest))
		if err != nil {
			return payload.Manifest{}, fmt.Errorf("copying %s: %w", f.Name, err)
		}
		blob, err := b.store(content)
		if err = errors.Join(err, content.Close()); err == nil && blob.Digest != f.Digest {
			err = contract.NewProblem(contract.ReasonPayloadCorrupt, "the blob has digest %.16s and should have %.16s",
				blob.Digest, f.Digest)
		}
		if err != nil {
			return payload.Manifest{}, fmt.Errorf("copying %s: %w", f.Name, err)
		}
	}
	return manifest, b.finish(manifest)
}

func (b *Builder) store(content io.Reader) (contract.Blob, error) {
	temporary, err := os.CreateTemp(payload.BlobPath(b.dir, ""), ".new-*")
	if err != nil {
		return contract.Blob{}, err
	}
	hash := sha256.New()
	size, err := io.Copy(io.MultiWriter(temporary, hash), content)
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err != nil {
		return contract.Blob{}, errors.Join(err, os.Remove(temporary.Name()))
	}
	blob := contract.Blob{Digest: hex.EncodeToString(hash.Sum(nil)), Size: size}
	if err = os.Rename(temporary.Name(), payload.BlobPath(b.dir, blob.Digest)); err != nil {
		return contract.Blob{}, errors.Join(err, os.Remove(temporary.Name()))
	}
	return blob, nil
}

// prune deletes blobs that the manifest doesn't list, and temporary files of a Builder that was interrupted.
func (b *Builder) prune(m payload.Manifest) error {
	entries, err := os.ReadDir(payload.BlobPath(b.dir, ""))
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		if !slices.ContainsFunc(m.Files, func(f payload.File) bool { return f.Digest == e.Name() }) {
			all = append(all, os.Remove(payload.BlobPath(b.dir, e.Name())))
		}
	}
	return errors.Join(all...)
}

// writeFile replaces a file in one step: readers see either the old content or the new content.
func writeFile(path string, content io.Reader) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(temporary, content)
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}

// `lacking` lists the parts of a payload that `files` lacks. `why` contains the known reasons.
func lacking(files []payload.File, why map[string]string) []payload.Missing {
	have := payload.Manifest{Files: files}
	var missing []payload.Missing
	for _, p := range payload.Parts() {
		if _, found := have.Named(p.Name); found {
			continue
		}
		reason := why[p.Name]
		if reason == "" {
			reason = "not in the payload"
		}
		missing = append(missing, payload.Missing{Name: p.Name, Feature: p.Feature, Reason: reason})
	}
	return missing
}
