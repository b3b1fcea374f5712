package payload

import (
	"io"
	"os"
	"path/filepath"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Blob is content that can be opened any number of times. It has the same fields as the operator's host.Blob, so Go
// can convert one type to the other. It is a separate type so that the daemon doesn't need the package for
// connections to hosts.
type Blob struct {
	contract.Blob
	// Open starts reading from the beginning; the caller closes.
	Open func() (io.ReadCloser, error)
}

// Dir is a payload directory: the manifest, and blobs named by their digest. It never changes.
type Dir struct {
	path     string
	manifest Manifest
}

// OpenDir reads a payload directory and checks that every blob of the manifest exists with its size. It does not read
// the blobs. If the directory can't be used, the error is a *contract.Problem PayloadMissing. A payload that lacks
// parts can be opened: see Manifest.Joinable.
func OpenDir(path string) (*Dir, error) {
	text, err := os.ReadFile(filepath.Join(path, ManifestName))
	if err != nil {
		return nil, contract.NewProblem(contract.ReasonPayloadMissing, "reading the payload's manifest: %v", err)
	}
	d := &Dir{path: path}
	if d.manifest, err = ParseManifest(text); err != nil {
		return nil, contract.NewProblem(contract.ReasonPayloadMissing, "%v", err)
	}
	for _, f := range d.manifest.Files {
		info, err := os.Stat(BlobPath(path, f.Digest))
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

// Blob finds a blob by its digest. It returns false if the manifest does not list it.
func (d *Dir) Blob(digest string) (Blob, bool) {
	for _, f := range d.manifest.Files {
		if f.Digest == digest {
			path := BlobPath(d.path, digest)
			return Blob{Blob: f.Blob(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}, true
		}
	}
	return Blob{}, false
}

// Select returns the blobs with these digests, in this order. If the directory lacks one, the error is a
// *contract.Problem.
func (d *Dir) Select(wanted []contract.Blob) ([]Blob, error) {
	blobs := make([]Blob, 0, len(wanted))
	for _, w := range wanted {
		b, found := d.Blob(w.Digest)
		if !found {
			return nil, contract.NewProblem(contract.ReasonPayloadMissing, "the payload has no blob %.16s", w.Digest)
		}
		blobs = append(blobs, b)
	}
	return blobs, nil
}

// BlobPath is the path of a blob in a payload directory. Without a digest, it is the folder of the blobs.
func BlobPath(dir, digest string) string { return filepath.Join(dir, "sha256", digest) }
