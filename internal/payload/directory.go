package payload

import (
	"io"
	"os"
	"path/filepath"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Blob is a blob that can be opened any number of times. Its fields are the same as the fields of host.Blob, so Go can
// convert one type to the other. It is a separate type so that the daemon doesn't import the package host, which
// connects to hosts.
type Blob struct {
	contract.Blob
	// Open returns the content from the beginning. The caller must close it.
	Open func() (io.ReadCloser, error)
}

// Dir is a payload directory. It contains the manifest, and blobs that are named by their digests. A Dir never changes.
type Dir struct {
	path     string
	manifest Manifest
}

// OpenDir opens a payload directory. It reads the manifest, and checks that every blob in the manifest exists and has
// the right size. It does not read the blobs. If the directory can't be used, the error is a *contract.Problem with the
// reason PayloadMissing. OpenDir also opens a payload that lacks parts: see Manifest.Joinable.
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

// Manifest returns the manifest of the directory. The caller must not change it.
func (d *Dir) Manifest() Manifest { return d.manifest }

// Blob returns the blob with a digest. It returns false if the manifest doesn't list the digest.
func (d *Dir) Blob(digest string) (Blob, bool) {
	for _, f := range d.manifest.Files {
		if f.Digest == digest {
			path := BlobPath(d.path, digest)
			return Blob{Blob: f.Blob(), Open: func() (io.ReadCloser, error) { return os.Open(path) }}, true
		}
	}
	return Blob{}, false
}

// Select returns the wanted blobs, in the same order. If a blob is missing, the error is a *contract.Problem.
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

// BlobPath returns the path of a blob in a payload directory. If digest is empty, it returns the folder of the blobs.
func BlobPath(dir, digest string) string { return filepath.Join(dir, "sha256", digest) }
