package payload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/windows-nodes/wmco/internal/contract"
)

// blobDir is the folder of a payload directory that holds the blobs.
const blobDir = "sha256"

// Blob is content that can be opened any number of times. Its form is that of the operator's
// host.Blob, so that one converts into the other, and the daemon needs to know nothing of how hosts
// are reached.
type Blob struct {
	contract.Blob
	// Open starts reading from the beginning; the caller closes.
	Open func() (io.ReadCloser, error)
}

// Dir is a payload directory: the manifest, and blobs named by their digest. It is only read.
type Dir struct {
	path     string
	manifest Manifest
}

// OpenDir reads a payload directory and makes sure that every blob of the manifest is there with
// its size. It does not read the blobs: see Verify. A directory that can't be used is a
// *contract.Problem PayloadMissing. One that lacks parts can be opened: see Manifest.Joinable.
func OpenDir(path string) (*Dir, error) { return OpenManifest(path, ManifestName) }

// OpenManifest is OpenDir for a directory with blobs of several payloads, whose manifests have other
// names.
func OpenManifest(path, name string) (*Dir, error) {
	text, err := os.ReadFile(filepath.Join(path, name))
	if err != nil {
		return nil, contract.NewProblem(contract.ReasonPayloadMissing, "reading the payload's manifest: %v", err)
	}
	d := &Dir{path: path}
	if d.manifest, err = ParseManifest(text); err != nil {
		return nil, contract.NewProblem(contract.ReasonPayloadMissing, "%v", err)
	}
	for _, f := range d.manifest.Files {
		info, err := os.Stat(blobPath(path, f.Digest))
		if err != nil {
			return nil, contract.NewProblem(contract.ReasonPayloadMissing, "looking for %s: %v", f.Name, err)
		}
		if info.Size() != f.Size {
			return nil, contract.NewProblem(contract.ReasonPayloadMissing, "%s has %d bytes and should have %d", f.Name,
				info.Size(), f.Size)
		}
	}
	return d, nil
}

// Manifest says what the directory holds. The caller must not change it.
func (d *Dir) Manifest() Manifest { return d.manifest }

// Blob finds a blob by its digest; false when the manifest has none of it.
func (d *Dir) Blob(digest string) (Blob, bool) {
	for _, f := range d.manifest.Files {
		if f.Digest == digest {
			path := blobPath(d.path, digest)
			return Blob{Blob: f.Blob(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}, true
		}
	}
	return Blob{}, false
}

// Select gives the blobs with these digests, in this order; an error names one that the directory
// does not have.
func (d *Dir) Select(wanted []contract.Blob) ([]Blob, error) { return Select(d, wanted) }

// Blobs has blobs by their digests.
type Blobs interface {
	// Blob is false for a digest that is not there.
	Blob(digest string) (Blob, bool)
}

// Select gives the blobs with these digests, in this order, out of what has blobs by their digests. The
// error is a *contract.Problem.
func Select(from Blobs, wanted []contract.Blob) ([]Blob, error) {
	blobs := make([]Blob, 0, len(wanted))
	for _, w := range wanted {
		b, found := from.Blob(w.Digest)
		if !found {
			return nil, contract.NewProblem(contract.ReasonPayloadMissing, "the payload has no blob %.16s", w.Digest)
		}
		blobs = append(blobs, b)
	}
	return blobs, nil
}

// Verify reads every blob and compares its digest. What differs is a *contract.Problem
// PayloadCorrupt.
func (d *Dir) Verify(ctx context.Context) error {
	for _, f := range d.manifest.Files {
		if err := d.verify(ctx, f); err != nil {
			return fmt.Errorf("verifying %s: %w", f.Name, err)
		}
	}
	return nil
}

func (d *Dir) verify(ctx context.Context, f File) (err error) {
	r, err := os.Open(blobPath(d.path, f.Digest))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	hash := sha256.New()
	if _, err = io.Copy(hash, until(ctx, r)); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != f.Digest {
		return contract.NewProblem(contract.ReasonPayloadCorrupt, "the blob has digest %.16s and should have %.16s",
			got, f.Digest)
	}
	return nil
}

func blobPath(dir, digest string) string { return filepath.Join(dir, blobDir, digest) }
