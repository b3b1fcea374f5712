// Package payload answers what binaries we ship to a node, and how they travel: the manifest, the
// content-addressed directory that holds them, and the stream that carries those a host lacks.
//
// The operator packs, the daemon unpacks; neither talks to a host here.
package payload

import "github.com/windows-nodes/wmco/internal/contract"

// ManifestName is the file in a payload directory that lists the directory's content. Blobs are next to it under
// sha256/<digest>.
const ManifestName = "payload.json"

// Manifest lists the binaries of one payload.
type Manifest struct {
	// Version of the payload, for people; digests are what counts.
	Version string `json:"version"`
	// Files has a part that must fit the API server once for each version, the newest first.
	Files []File `json:"files"`
	// Missing lists what this payload lacks, and which feature is off because of that.
	Missing []Missing `json:"missing,omitempty"`
}

// File is one binary.
type File struct {
	// Name is short and unique, such as kubelet.exe.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Source says where it comes from: a module path and version, or "supplied".
	Source string `json:"source"`
	Size   int64  `json:"size"`
	Digest string `json:"sha256"`
	// Path on the node.
	Path string `json:"path"`
}

// Missing is a binary that this payload lacks.
type Missing struct {
	Name    string  `json:"name"`
	Feature Feature `json:"feature"`
	Reason  string  `json:"reason"`
}

// Blob is the file as a blob.
func (f File) Blob() contract.Blob { return contract.Blob{Digest: f.Digest, Size: f.Size} }
