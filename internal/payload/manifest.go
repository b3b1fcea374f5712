package payload

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// ParseManifest decodes a manifest and checks it.
func ParseManifest(text []byte) (m Manifest, err error) {
	if err = json.Unmarshal(text, &m); err != nil {
		return Manifest{}, fmt.Errorf("decoding the payload's manifest: %w", err)
	}
	if err = m.check(); err != nil {
		return Manifest{}, fmt.Errorf("checking the payload's manifest: %w", err)
	}
	return m, nil
}

// Named returns the file with a name, or false. If the file has several versions, Named returns the first version.
func (m Manifest) Named(name string) (File, bool) {
	for _, f := range m.Files {
		if f.Name == name {
			return f, true
		}
	}
	return File{}, false
}

// Blobs lists each blob once, in the order of the files.
func (m Manifest) Blobs() []contract.Blob {
	seen := make(map[string]bool, len(m.Files))
	blobs := make([]contract.Blob, 0, len(m.Files))
	for _, f := range m.Files {
		if !seen[f.Digest] {
			seen[f.Digest] = true
			blobs = append(blobs, f.Blob())
		}
	}
	return blobs
}

// Joinable returns a *contract.Problem with the missing parts if hosts can't become nodes with this payload.
func (m Manifest) Joinable() error {
	var lacking []string
	for _, p := range Parts() {
		if _, found := m.Named(p.Name); p.Required && !found {
			lacking = append(lacking, p.Name)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return contract.NewProblem(contract.ReasonPayloadMissing, "payload %q lacks %s", m.Version,
		strings.Join(lacking, ", "))
}

// check returns nil if the manifest is usable. It returns an error if names or paths occur twice, if a digest is
// invalid, or if a path can't be on a node. Exception: the name and the path of a Skewed part may occur several times.
func (m Manifest) check() error {
	names, paths, sizes := map[string]bool{}, map[string]bool{}, map[string]int64{}
	for _, f := range m.Files {
		name, path := strings.ToLower(f.Name), strings.ToLower(f.Path)
		if isSkewed(f.Name) {
			name, path = name+" "+f.Version, path+" "+f.Version
		}
		switch {
		case f.Name == "" || strings.ContainsAny(f.Name, `/\:`):
			return fmt.Errorf("file name %q is not usable", f.Name)
		case names[name]:
			return fmt.Errorf("file name %q occurs twice", f.Name)
		case !isNodePath(f.Path):
			return fmt.Errorf("path %q of %s is not an absolute Windows path", f.Path, f.Name)
		case paths[path]:
			return fmt.Errorf("path %q occurs twice", f.Path)
		case !contract.IsDigest(f.Digest):
			return fmt.Errorf("digest %q of %s is not a SHA-256", f.Digest, f.Name)
		case f.Size < 0:
			return fmt.Errorf("size of %s is negative", f.Name)
		}
		if size, seen := sizes[f.Digest]; seen && size != f.Size {
			return fmt.Errorf("digest of %s occurs with two sizes", f.Name)
		}
		names[name], paths[path], sizes[f.Digest] = true, true, f.Size
	}
	return nil
}

// isNodePath reports whether a path is absolute, on drive C:, without relative steps and without a second drive.
func isNodePath(path string) bool {
	rest, found := strings.CutPrefix(strings.ToLower(path), `c:\`)
	if !found || rest == "" || strings.ContainsAny(rest, `/:*?"<>|`) {
		return false
	}
	for part := range strings.SplitSeq(rest, `\`) {
		if part == "" || part == "." || part == ".." {
			return false
		}
	}
	return true
}
